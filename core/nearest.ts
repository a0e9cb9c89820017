import { closest, distance } from 'fastest-levenshtein';

/** Returns the known name that a wrong one was probably meant to be: a third of the letters may differ, and two in a short name. */
export function nearest(name: string, known: readonly string[]): string | null {
  if (known.length === 0) return null;
  const like = closest(name, known);
  return distance(name, like) <= Math.max(2, Math.floor(name.length / 3)) ? like : null;
}
