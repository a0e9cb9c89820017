const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;

/** Returns `after` with each part that equals the same part of `before` as the old object, so that only what changed is drawn again. */
export function reuse<T>(before: unknown, after: T): T;
export function reuse(before: unknown, after: unknown): unknown {
  if (before === after || !isObject(before) || !isObject(after)) return after;
  if (Array.isArray(before) !== Array.isArray(after)) return after;
  if (Array.isArray(after)) {
    const old: unknown[] = Array.isArray(before) ? before : [];
    const parts = after.map((part, i) => reuse(old[i], part));
    return parts.length === old.length && parts.every((part, i) => part === old[i]) ? before : parts;
  }
  const parts = Object.entries(after).map(([name, part]) => [name, reuse(before[name], part)] as const);
  const isSame =
    parts.length === Object.keys(before).length &&
    parts.every(([name, part]) => Object.hasOwn(before, name) && part === before[name]);
  return isSame ? before : Object.fromEntries(parts);
}
