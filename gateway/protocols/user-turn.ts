import type { JsonObject } from '../json.ts';

/**
 * Builds the messages of a user's turn: the results of tools, then the user's own parts. Media without a text are a part of the last
 * result: as a message of their own they would be an empty turn for a model that reads none.
 */
export function userTurn(results: readonly JsonObject[], parts: readonly JsonObject[]): JsonObject[] {
  const last = results.at(-1);
  if (last && parts.every(({ type }) => type !== 'text'))
    return [...results.slice(0, -1), { ...last, content: [...partsOf(last.content), ...parts] }];
  const [only] = parts;
  return [...results, { role: 'user', content: parts.length === 1 && only?.type === 'text' ? only.text : [...parts] }];
}

const partsOf = (content: unknown): unknown[] =>
  Array.isArray(content) ? content : content === '' ? [] : [{ type: 'text', text: content }];
