declare global {
  interface JSON {
    rawJSON(text: string): object;
    isRawJSON(value: unknown): boolean;
  }
}

/**
 * Parses JSON that must be written again without a change: numbers keep their spelling (`1.0`, `12345678901234567890`), and keys keep
 * their order, also keys that JavaScript moves to the front (`{"10":…,"2":…}`). Such a number becomes a `JSON.rawJSON` value, which is not
 * a number to code that reads it. Such a key gets a mark before it, which `stringifyExact` removes.
 */
export function parseExact(text: string): unknown {
  const marked = INDEX_KEY.test(text) ? text.replace(INDEX_KEYS, `"${MARK}$1"`) : text;
  return LOSSY.test(marked) ? JSON.parse(marked, keepSource) : JSON.parse(marked);
}

export function stringifyExact(value: unknown): string {
  // `JSON.stringify` returns undefined for a value that has no JSON, whatever its type says.
  const text = JSON.stringify(value) ?? 'null';
  return text.includes(MARK) ? text.replace(MARKED_KEYS, '"$1":') : text;
}

/** Returns the key under which `parseExact` keeps a field of this name. */
export const exactKey = (name: string): string => (/^\uE000*\d+$/.test(name) ? `${MARK}${name}` : name);

export const isRawNumber = (value: unknown): boolean => JSON.isRawJSON(value);

/** Returns a number that was kept as written as a number, and any other value unchanged. */
export const asNumber = (value: unknown): unknown => (JSON.isRawJSON(value) ? Number(JSON.stringify(value)) : value);

/** A character of Unicode's private use area. A key that already begins with it gets one more. */
const MARK = '\uE000';
const DIGITS = String.raw`(${MARK}*(?:[0-9]|\\u003[0-9])+)`;
// Within a JSON string, a quotation mark has a backslash before it, so these patterns cannot match there.
const INDEX_KEY = new RegExp(String.raw`[{,\s]"${DIGITS}"\s*:`);
const INDEX_KEYS = new RegExp(String.raw`(?<=[{,\s])"${DIGITS}"(?=\s*:)`, 'g');
const MARKED_KEYS = new RegExp(`(?<=[{,])"${MARK}(${MARK}*[0-9]+)":`, 'g');

/** Matches a number that JavaScript may write in another form: long numbers, tiny ones, a zero at the end of a fraction, exponents, `-0`. */
const LOSSY =
  /[[:,\s]-?(?:\d{16,}|0(?<=-0)|\d+\.\d*0|0\.0{6}\d+|(?=[\d.]{17})\d+\.\d+|\d+(?:\.\d+)?[eE][-+]?\d+)\s*[,}\]]/;

function keepSource(_key: string, value: unknown, context?: { source?: string }): unknown {
  const source = context?.source;
  return typeof value === 'number' && source !== undefined && !isCanonical(value, source)
    ? JSON.rawJSON(source)
    : value;
}

const isCanonical = (value: number, source: string): boolean => String(value) === source && !Object.is(value, -0);
