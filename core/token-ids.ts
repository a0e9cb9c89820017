export function concat(a: ArrayLike<number>, b: ArrayLike<number>): Int32Array {
  const both = new Int32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** True when `ids` begin with `prefix`. It compares from the end, because the conversations of one trial differ there. */
export function startsWith(ids: ArrayLike<number>, prefix: ArrayLike<number>): boolean {
  if (ids.length < prefix.length) return false;
  for (let i = prefix.length - 1; i >= 0; i--) if (ids[i] !== prefix[i]) return false;
  return true;
}

/** Returns the number of elements that two lists share from their beginning. */
export function sharedLength(a: ArrayLike<unknown>, b: ArrayLike<unknown>): number {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) i++;
  return i;
}
