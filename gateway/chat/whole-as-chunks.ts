import { isObject, type JsonObject } from '../json.ts';
import { onlyChoice } from './hide.ts';

export type ChunkHead = { id: unknown; object: 'chat.completion.chunk'; created: number; model: unknown };

/** A chat completion that is there at once, as a stream. */
export async function* wholeAsChunks(whole: () => Promise<JsonObject>): AsyncGenerator<JsonObject> {
  const { usage, prompt_token_ids, ...reply } = await whole();
  const { message, finish_reason, stop_reason, ...rest } = onlyChoice(reply) ?? {};
  const created = typeof reply.created === 'number' ? reply.created : Math.floor(Date.now() / 1000);
  const head: ChunkHead = { id: reply.id, object: 'chat.completion.chunk', created, model: reply.model };
  yield { ...openingChunk(head), prompt_token_ids };
  yield { ...head, choices: [{ ...rest, index: 0, delta: deltaOf(isObject(message) ? message : {}), finish_reason: null }] };
  yield { ...head, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason, stop_reason }] };
  if (isObject(usage)) yield { ...head, choices: [], usage };
}

export const openingChunk = (head: ChunkHead) => ({
  ...head,
  choices: [{ index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }],
});

/** What is null or empty in a message is absent from a delta; tool calls carry their place. */
function deltaOf({ tool_calls, ...message }: JsonObject): JsonObject {
  const said = Object.fromEntries(Object.entries(message).filter(([key, value]) => key !== 'role' && value !== null && value !== undefined));
  if (!Array.isArray(tool_calls) || tool_calls.length === 0) return said;
  return { ...said, tool_calls: tool_calls.map((call: unknown, index) => (isObject(call) ? { index, ...call } : call)) };
}
