export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null && !Array.isArray(value);

/** For PostgreSQL, whose text has neither NUL nor half a character: what a model or an engine wrote may have both. */
export const toStorable = (value: unknown): string => JSON.stringify(value).replace(/(\\\\)|\\u(?:0000|d[89a-f]..)/g, (_, backslash?: string) => backslash ?? '\uFFFD');
