import { parseExact } from '../../core/exact-json.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../json.ts';

/** A tool call, or the next part of one. */
export type ToolCall = { index: number; id: string | null; name: string | null; arguments: string };

/** The contents of a chat message or a delta. */
export type MessageParts = { reasoning: string; text: string; tools: ToolCall[] };

export function parseMessage(message: unknown): MessageParts {
  if (!isObject(message)) return { reasoning: '', text: '', tools: [] };
  const { content, reasoning, reasoning_content, tool_calls } = message;
  return {
    reasoning: textIn(reasoning) || textIn(reasoning_content),
    text: textIn(content),
    tools: Array.isArray(tool_calls) ? tool_calls.filter(isObject).map(toolIn) : [],
  };
}

function toolIn(call: JsonObject, place: number): ToolCall {
  const { name = null, arguments: given = '' } = isObject(call.function) ? call.function : {};
  return {
    index: typeof call.index === 'number' ? call.index : place,
    id: typeof call.id === 'string' ? call.id : null,
    name: typeof name === 'string' ? name : null,
    arguments: textIn(given),
  };
}

/**
 * Returns the arguments of a tool call as JSON. A model may write arguments that are not an object or not JSON: other JSON is returned
 * unchanged, other text as a text, and missing arguments as an empty object.
 */
export function argumentsIn(given: string): unknown {
  if (given.trim() === '') return {};
  try {
    const value = parseExact(given);
    return typeof value === 'string' ? given : value;
  } catch {
    return given;
  }
}

/** Returns the one reply of a call whose protocol has no `n`. */
export const onlyChoice = (reply: JsonObject): JsonObject => choicesOf(reply)[0] ?? {};

export const textIn = (value: unknown): string => (typeof value === 'string' ? value : '');
