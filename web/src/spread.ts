/** Returns a random wait: pages that hear the same in one instant must not all ask in the next. */
export const spread = (): number => Math.random() * 3_000;
