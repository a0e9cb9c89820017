/** Above these a call would keep the event loop from other calls for more than about 2 ms, where most take 0.5 (`bench/attacks/bodies.ts` shows what others notice). */
const HEAVY_BYTES = 128 * 2 ** 10;
const HEAVY_NODES = 3_000;

/** Whether a body is heavy by its headers. One that is compressed, or whose length is not said, may be. */
export const isHeavy = ({ headers }: Request): boolean => headers.has('content-encoding') || Number(headers.get('content-length') ?? Infinity) > HEAVY_BYTES;

/** Whether a body that was read is: a small one may hold many values. */
export const hasManyNodes = (nodes: number): boolean => nodes > HEAVY_NODES;
