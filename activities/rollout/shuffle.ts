import { createHash } from 'node:crypto';

/** Returns the items sorted by a hash of (seed, base name): the same order for the same seed on every machine. */
export function shuffle(items: string[], seed: number): string[] {
  const rank = (item: string) => createHash('sha256').update(`${seed}\n${basename(item)}`).digest('hex');
  return items.toSorted((a, b) => rank(a).localeCompare(rank(b)));
}

const basename = (path: string): string => path.slice(path.lastIndexOf('/') + 1);
