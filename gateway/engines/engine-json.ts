import { stringifyExact } from '../../core/exact-json.ts';
import { isObject, type JsonObject } from '../json.ts';

/** Half a surrogate pair as JSON writes it, a whole pair, or an escaped backslash, which hides what follows it. */
const ESCAPES = /\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]../g;
const HALF = /\\u[dD][89a-fA-F]/;

/**
 * Returns a request as JSON that an engine can tokenize: U+FFFD replaces half a surrogate pair, as programs write that cut a text within a
 * character. A tokenizer refuses the half, and with it every later call of the conversation. The record keeps it.
 */
export function engineJson(body: JsonObject): string {
  const text = stringifyExact(body);
  if (!HALF.test(text)) return text;
  const { messages } = body;
  return wholeCharacters(
    Array.isArray(messages) ? stringifyExact({ ...body, messages: messages.map(withWholeArguments) }) : text,
  );
}

/** The arguments of a call are JSON within a text, which engines parse for the template. */
function withWholeArguments(message: unknown): unknown {
  if (!isObject(message) || !Array.isArray(message.tool_calls)) return message;
  const calls = message.tool_calls.map((call: unknown) =>
    isObject(call) && isObject(call.function) && typeof call.function.arguments === 'string'
      ? { ...call, function: { ...call.function, arguments: wholeCharacters(call.function.arguments) } }
      : call,
  );
  return { ...message, tool_calls: calls };
}

const wholeCharacters = (json: string): string =>
  json.replace(ESCAPES, (escape) => (escape.length === 6 ? '\\ufffd' : escape));
