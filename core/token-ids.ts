/** Returns both lists as views of one array, which `concat` then need not copy. */
export function sideBySide(a: ArrayLike<number>, b: ArrayLike<number>): [Int32Array, Int32Array] {
  const both = concat(a, b);
  return [both.subarray(0, a.length), both.subarray(a.length)];
}

export function concat(a: ArrayLike<number>, b: ArrayLike<number>): Int32Array {
  if (a instanceof Int32Array && b instanceof Int32Array && isNextTo(a, b))
    return new Int32Array(a.buffer, a.byteOffset, a.length + b.length);
  const both = new Int32Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

const isNextTo = (a: Int32Array, b: Int32Array): boolean =>
  a.buffer === b.buffer && a.byteOffset + a.byteLength === b.byteOffset;

/** True when `ids` begin with `prefix`. It compares from the end, because the conversations of one trial differ there. */
export function startsWith(ids: ArrayLike<number>, prefix: ArrayLike<number>): boolean {
  if (ids.length < prefix.length) return false;
  for (let i = prefix.length - 1; i >= 0; i--) if (ids[i] !== prefix[i]) return false;
  return true;
}

/** True when both lists have the same ids. */
export const sameIds = (a: ArrayLike<number>, b: ArrayLike<number>): boolean =>
  a.length === b.length && startsWith(a, b);

/** Returns the number of elements that two lists share from their beginning. */
export function sharedLength(a: ArrayLike<unknown>, b: ArrayLike<unknown>): number {
  const end = Math.min(a.length, b.length);
  let i = 0;
  while (i < end && a[i] === b[i]) i++;
  return i;
}
