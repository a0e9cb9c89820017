import { isObject, type JsonObject } from '../store/json.ts';
import { Failure } from './failure.ts';

export { isObject, type JsonObject } from '../store/json.ts';

/** Null when the text is not JSON, or not an object. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : null;
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
  return value;
}

export const badRequest = (message: string) => new Failure(400, 'invalid_request', message, { retryable: false });
