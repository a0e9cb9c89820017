import { isRawNumber } from './exact-json.ts';

export type JsonObject = Record<string, unknown>;

/** Returns null when the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isRawNumber(value);

/**
 * Returns JSON that PostgreSQL can store. Its text has neither NUL nor half a surrogate pair, which a model or an engine may write: U+FFFD
 * replaces them.
 */
export function toStorable(value: unknown): string {
  const json = JSON.stringify(value);
  return json.includes('\\u')
    ? json.replace(/(\\\\)|\\u(?:0000|d[89a-f]..)/g, (_, backslash?: string) => backslash ?? '\uFFFD')
    : json;
}

/** True when PostgreSQL can store the JSON of the value as it is. */
export const isStorable = (value: unknown): boolean => toStorable(value) === JSON.stringify(value);

/** Returns the text in a form that PostgreSQL can store. */
export const toStorableText = (text: string): string => text.replaceAll('\0', '\uFFFD').toWellFormed();
