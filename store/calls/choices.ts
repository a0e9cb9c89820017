import { isObject, type JsonObject } from '../../core/json.ts';

/** Returns the choices of a reply or of a streamed chunk. */
export const choicesOf = (reply: JsonObject | null): JsonObject[] =>
  Array.isArray(reply?.choices) ? reply.choices.filter(isObject) : [];
