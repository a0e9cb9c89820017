import { isObject, type JsonObject } from '../store/json.ts';
import { Failure } from './failure.ts';

export { isObject, type JsonObject } from '../store/json.ts';

/** What handles JSON calls itself for each level, here and in engines: a stack has an end. */
const MAX_DEPTH = 500;

/** Null when the text is not JSON, not an object, or too deep. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) && !isTooDeep(value, text.length) ? value : null;
  } catch {
    return null;
  }
}

/** The JSON object that a request's body holds. The original, not a copy: every field of it passes through. */
export function parseBody(bytes: Uint8Array): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw badRequest(`the body is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!isObject(value)) throw badRequest('the body must be a JSON object');
  if (isTooDeep(value, bytes.byteLength)) throw badRequest(`the body is nested deeper than ${MAX_DEPTH} levels`);
  return value;
}

export const badRequest = (message: string) => new Failure(400, 'invalid_request', message, { retryable: false });

/** `length`: of its text; each level takes two characters of it. */
function isTooDeep(value: JsonObject, length: number): boolean {
  if (length < 2 * MAX_DEPTH) return false;
  let level: object[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth >= MAX_DEPTH) return true;
    const below: object[] = [];
    for (const each of level) for (const part of Object.values(each)) if (typeof part === 'object' && part !== null) below.push(part);
    level = below;
  }
  return false;
}
