/**
 * Above these limits a call would block the event loop for more than about 2 ms; most calls take 0.5 ms (`bench/attacks/bodies.ts` measures
 * the effect on others).
 */
export const HEAVY_BYTES = 128 * 2 ** 10;
export const HEAVY_NODES = 3_000;

/** True when a body may be heavy, by its headers: it is large, compressed, or of unknown length. A request without these headers has no body. */
export function isHeavy({ headers }: Request): boolean {
  const length = headers.get('content-length');
  return (
    headers.has('content-encoding') ||
    (length === null ? headers.has('transfer-encoding') : Number(length) > HEAVY_BYTES)
  );
}

/** True when a body that was read is heavy, because a small body may hold many values. */
export const hasManyNodes = (nodes: number): boolean => nodes > HEAVY_NODES;
