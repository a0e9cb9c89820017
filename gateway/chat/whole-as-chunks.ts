import { isObject, type JsonObject } from '../json.ts';
import { choicesOf } from '../../store/calls/choices.ts';

export type ChunkHead = { id: unknown; object: unknown; created: number; model: unknown };

/** Builds a chat completion that was assembled here. */
export function chatReply({
  id,
  model,
  choices,
  usage,
}: {
  id: unknown;
  model: unknown;
  choices: JsonObject[];
  usage: unknown;
}): JsonObject {
  return { id, object: 'chat.completion', created: Math.floor(Date.now() / 1000), model, choices, usage };
}

/** Returns a whole chat or text completion as the chunks of a stream. */
export function wholeAsChunks(whole: JsonObject): JsonObject[] {
  const { usage, prompt_token_ids, ...reply } = whole;
  const created = typeof reply.created === 'number' ? reply.created : Math.floor(Date.now() / 1000);
  const isText = reply.object === 'text_completion';
  const head: ChunkHead = {
    id: reply.id,
    object: isText ? reply.object : 'chat.completion.chunk',
    created,
    model: reply.model,
  };
  const choices = choicesOf(reply);
  const chunks = isText
    ? choices.map((choice) => ({ ...head, choices: [choice] }))
    : [
        ...openingChunks(head, choices.length, prompt_token_ids),
        ...choices.flatMap((choice, i) =>
          chatChunks(head, choice, typeof choice.index === 'number' ? choice.index : i),
        ),
      ];
  return isObject(usage) ? [...chunks, { ...head, choices: [], usage }] : chunks;
}

function chatChunks(
  head: ChunkHead,
  { message, finish_reason, stop_reason, ...rest }: JsonObject,
  index: number,
): JsonObject[] {
  const opening = { ...rest, index, delta: deltaOf(isObject(message) ? message : {}), finish_reason: null };
  const end = { index, delta: {}, logprobs: null, finish_reason, stop_reason };
  return [opening, end].map((choice) => ({ ...head, choices: [choice] }));
}

/** Returns one opening chunk for each choice. The first one has the prompt's ids. */
export function openingChunks(head: ChunkHead, n: number, prompt_token_ids: unknown): JsonObject[] {
  const opening = { delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null };
  return Array.from({ length: n }, (_, index) => ({
    ...head,
    choices: [{ index, ...opening }],
    ...(index === 0 ? { prompt_token_ids } : {}),
  }));
}

/** Returns a message as a delta, without null and empty fields. Tool calls get their index. */
function deltaOf({ tool_calls, ...message }: JsonObject): JsonObject {
  const fields = Object.fromEntries(
    Object.entries(message).filter(([key, value]) => key !== 'role' && value !== null && value !== undefined),
  );
  if (!Array.isArray(tool_calls) || tool_calls.length === 0) return fields;
  return {
    ...fields,
    tool_calls: tool_calls.map((call: unknown, index) => (isObject(call) ? { index, ...call } : call)),
  };
}
