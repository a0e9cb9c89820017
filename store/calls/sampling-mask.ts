/** The token ids that could be sampled at each position of a completion: vLLM's `sampling_mask`, one list for each token. */
export type SamplingMask = readonly (readonly number[])[];

const CONTINUES = 0x80;

/**
 * Packs a sampling mask as variable-length integers (LEB128): for each token the number of ids, then the ascending ids as
 * differences. A list of 100 ids takes about 200 bytes.
 */
export function packMask(mask: SamplingMask): Uint8Array {
  const bytes: number[] = [];
  const write = (value: number) => {
    for (; value >= CONTINUES; value >>>= 7) bytes.push((value & (CONTINUES - 1)) | CONTINUES);
    bytes.push(value);
  };
  for (const ids of mask) {
    write(ids.length);
    let before = 0;
    for (const id of ids.toSorted((a, b) => a - b)) {
      write(id - before);
      before = id;
    }
  }
  return Uint8Array.from(bytes);
}

/** Unpacks a sampling mask of `packMask`, with its ids ascending. */
export function unpackMask(packed: Uint8Array): number[][] {
  let at = 0;
  const read = (): number => {
    for (let value = 0, shift = 0; ; shift += 7) {
      const byte = packed[at++] ?? 0;
      value |= (byte & (CONTINUES - 1)) << shift;
      if (byte < CONTINUES) return value;
    }
  };
  const mask: number[][] = [];
  while (at < packed.length) {
    let id = 0;
    mask.push(Array.from({ length: read() }, () => (id += read())));
  }
  return mask;
}
