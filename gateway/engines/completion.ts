import { isObject, type JsonObject } from '../json.ts';
import { choicesOf } from '../../store/calls/choices.ts';

/**
 * The form in which every engine is asked and answers, here: OpenAI's chat and text completions. Agents of these protocols may ask for
 * token ids by `return_token_ids`, as they may ask vLLM; replies then have `prompt_token_ids` and, in each choice, `token_ids`.
 */
export type CompletionKind = 'chat' | 'text';

/** The extra fields that an agent asked for itself. Everything else that the engine is asked for is hidden from it. */
export type Wants = { logprobs: boolean; tokenIds: boolean; usage: boolean };

/** OpenAI's routes. */
export const ROUTES = { chat: '/v1/chat/completions', text: '/v1/completions' };

/** Returns the field that asks for the counts of a stream's tokens, which come only on request. */
export const withUsage = ({ stream_options: options }: JsonObject): JsonObject => ({
  stream_options: { ...(isObject(options) ? options : {}), include_usage: true },
});

/** True when each chunk of a stream is to have the counts until then, an option that engines add to OpenAI's. */
export const asksForEachUsage = ({ stream_options: options }: JsonObject): boolean =>
  isObject(options) && options.include_usage === true && options.continuous_usage_stats === true;

/** Returns the counts before the first token is sampled. */
export const usageBefore = (usage: JsonObject): JsonObject => ({
  ...usage,
  completion_tokens: 0,
  total_tokens: usage.prompt_tokens,
});

export const asksForIds = ({ return_token_ids: asked }: JsonObject): boolean => asked === true;

/** Returns a stored reply with its ids, which have columns of their own. A text completion names the prompt's ids in each choice. */
export function withIds(
  reply: JsonObject,
  kind: CompletionKind,
  prompt: ArrayLike<number> | null,
  completions: readonly (ArrayLike<number> | null)[],
): JsonObject {
  const prompted = { prompt_token_ids: prompt && Array.from(prompt) };
  const choices = choicesOf(reply).map((choice, i) => ({
    ...choice,
    ...(kind === 'text' ? prompted : {}),
    token_ids: Array.from(completions[i] ?? []),
  }));
  return { ...reply, choices, ...(kind === 'text' ? {} : prompted) };
}

/** Returns a chunk without the prompt's ids, which an earlier chunk has. */
export function withoutPrompt(chunk: JsonObject): JsonObject {
  const { prompt_token_ids: _, ...rest } = chunk;
  return rest;
}

/** Returns the reply or chunk without what only the record needs: `own` names an engine's own fields of a choice. All other fields stay, known or not. */
export function hide(reply: JsonObject, wants: Wants, own: readonly string[] = []): JsonObject {
  const shown = { ...reply };
  if (!wants.tokenIds) leaveOut(shown, 'prompt_token_ids');
  if (!wants.usage) leaveOut(shown, 'usage');
  if (Array.isArray(shown.choices))
    shown.choices = shown.choices.map((choice: unknown) => hideInChoice(choice, wants, own));
  return shown;
}

/** Returns the reply for the record, which has the ids in columns of their own. */
export const recordedReply = (shown: JsonObject, wants: Wants): JsonObject =>
  wants.tokenIds ? hide(shown, { ...wants, tokenIds: false }) : shown;

function hideInChoice(choice: unknown, wants: Wants, own: readonly string[]): unknown {
  if (!isObject(choice)) return choice;
  const shown = { ...choice };
  for (const name of own) leaveOut(shown, name);
  if (!wants.tokenIds) {
    leaveOut(shown, 'token_ids');
    leaveOut(shown, 'prompt_token_ids');
  }
  if (!wants.logprobs) leaveOut(shown, 'logprobs');
  return shown;
}

/** JSON leaves out what is undefined. `delete` would make the object a dictionary, which V8 reads and writes more slowly. */
function leaveOut(object: JsonObject, name: string): void {
  if (name in object) object[name] = undefined;
}

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

/** Returns a whole chat or text completion as the chunks of a stream. With `hasEachUsage` each has the counts until then. */
export function wholeAsChunks(whole: JsonObject, hasEachUsage = false): JsonObject[] {
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
  if (!isObject(usage)) return chunks;
  // All of the reply comes in one chunk, after those that open it.
  const openings = isText ? 0 : choices.length;
  const counted = hasEachUsage
    ? chunks.map((chunk, i) => ({ ...chunk, usage: i < openings ? usageBefore(usage) : usage }))
    : chunks;
  return [...counted, { ...head, choices: [], usage }];
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

/** Returns the number of sampled tokens as the engine counted them. */
export function completionCount(usage: unknown): number | null {
  return isObject(usage) && typeof usage.completion_tokens === 'number' ? usage.completion_tokens : null;
}
