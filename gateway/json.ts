import { asNumber, parseExact } from '../core/exact-json.ts';
import { isObject, type JsonObject } from '../core/json.ts';
import { Failure } from './failure.ts';

export { isObject, type JsonObject } from '../core/json.ts';

/** Code that handles JSON recurses for each level, here and in engines, and a stack has an end. */
export const MAX_DEPTH = 500;

/** Returns null when the text is not JSON, not an object, or too deep. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) && !isTooDeep(value, text) ? value : null;
  } catch {
    return null;
  }
}

/** True when a field of a request asks for anything. */
export function isSet(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isObject(value)) return Object.keys(value).length > 0;
  return Boolean(value);
}

/** Fields that the gateway itself reads as numbers. */
const NUMBERS = [
  'n',
  'best_of',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'min_tokens',
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'logprobs',
  'top_logprobs',
];

function withNumbers(request: JsonObject): JsonObject {
  for (const name of NUMBERS) if (name in request) request[name] = asNumber(request[name]);
  return request;
}

/** Parses a model's request. The parts that the gateway does not use keep their exact text, including numbers and the order of keys. */
export const parseModelRequest = (bytes: Uint8Array): JsonObject => withNumbers(parseBody(bytes, parseExact));

/** One for all bodies, because to make one takes longer than to decode a short body. */
const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** Returns the JSON object in a request's body. */
export function parseBody(bytes: Uint8Array, parse: (text: string) => unknown = JSON.parse): JsonObject {
  let text: string;
  let value: unknown;
  try {
    text = UTF8.decode(bytes);
    value = parse(text);
  } catch (error) {
    throw badRequest(`the body is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!isObject(value)) throw badRequest('the body must be a JSON object');
  if (isTooDeep(value, text)) throw badRequest(`the body is nested deeper than ${MAX_DEPTH} levels`);
  return value;
}

export const badRequest = (message: string) => new Failure(400, 'invalid_request', message, { retryable: false });

/** True when the value is too deep. It is walked only if its text has enough brackets to be so. */
function isTooDeep(value: JsonObject, text: string): boolean {
  if (!hasBrackets(text, MAX_DEPTH)) return false;
  let level: object[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth >= MAX_DEPTH) return true;
    const below: object[] = [];
    for (const each of level)
      for (const part of Object.values(each)) if (typeof part === 'object' && part !== null) below.push(part);
    level = below;
  }
  return false;
}

function hasBrackets(text: string, atLeast: number): boolean {
  let count = 0;
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at >= 0 && count < atLeast; at = text.indexOf(bracket, at + 1)) count++;
  }
  return count >= atLeast;
}
