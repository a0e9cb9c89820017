import { isObject, type JsonObject } from '../json.ts';

/** A reply's or a chunk's choices. */
export const choicesOf = (reply: JsonObject | null): JsonObject[] => (Array.isArray(reply?.choices) ? reply.choices.filter(isObject) : []);
