import { continuePrompt } from '../../conversations/prompt.ts';
import { parseObject, type JsonObject } from '../../json.ts';
import { ask as askIn } from '../answer.ts';
import { hasMedia } from '../adapt-messages.ts';
import { readText } from '../connection.ts';
import { continueText } from '../continue-text.ts';
import type { Answer, GenerationRequest } from '../engine.ts';
import type { Exchange } from '../exchange.ts';
import { idsIn, newExpertsFrom } from '../read-sampled.ts';
import { engineJson } from '../engine-json.ts';
import { cutToRoom, roomAfter } from '../room.ts';
import { staysAsSampled, withoutThinking } from '../thinking.ts';
import { isPlainChat, renderedFields, sglangBody } from './body.ts';
import { fromIds } from './from-ids.ts';
import { refused } from './rejection.ts';
import { wholeChat } from './whole-chat.ts';

/** The limit of a text completion that names none. */
const MAX_TOKENS = 16;

export async function generate(exchange: Exchange, request: GenerationRequest, body: JsonObject): Promise<Answer> {
  const cut = await withLimitInRoom(exchange, body);
  return request.kind === 'chat' ? chat(exchange, request, cut) : text(exchange, request, cut);
}

/** SGLang refuses a request whose limit of tokens is larger than the room after its prompt, so a larger limit is cut to the room. */
async function withLimitInRoom(exchange: Exchange, body: JsonObject): Promise<JsonObject> {
  const { max_tokens: limit, prompt } = body;
  if (typeof limit !== 'number') return body;
  const asked = prompt === undefined ? renderedFields(body) : { prompt };
  const max_tokens = await cutToRoom(exchange.lease.replica, limit, {
    // A token has a byte at least. A template adds some tokens to each message.
    bytes: 2 * engineJson(asked).length + 1024,
    count: async () =>
      idsIn(prompt)?.length ?? idsIn((await ask(exchange, '/tokenize', asked))?.tokens)?.length ?? null,
  });
  return { ...body, max_tokens };
}

async function text(exchange: Exchange, request: GenerationRequest, body: JsonObject): Promise<Answer> {
  const maxNewTokens = typeof body.max_tokens === 'number' ? body.max_tokens : MAX_TOKENS;
  const continued = await continueText(request, body.prompt, {
    detokenize: async (tokens) => {
      const reply = await ask(exchange, '/detokenize', { tokens, skip_special_tokens: false });
      return typeof reply?.text === 'string' ? reply.text : null;
    },
    tokenize: async (added) =>
      idsIn((await ask(exchange, '/tokenize', { prompt: added, add_special_tokens: false }))?.tokens),
  });
  if (!continued) {
    const prompt = idsIn(body.prompt) ?? String(body.prompt);
    return fromIds(exchange, request, { body, prompt, maxNewTokens, expertsFrom: 0 });
  }
  const { prompt, turn } = continued;
  request.checkPrompt(prompt);
  const answer = await fromIds(exchange, request, {
    body,
    prompt,
    maxNewTokens: await roomFor(exchange, prompt, maxNewTokens),
    expertsFrom: newExpertsFrom(turn),
  });
  return { ...answer, parent: turn };
}

/**
 * A chat that is streamed as text goes by `/generate`, whose stream has the ids. Every other chat goes by the chat route, whole, with its prompt as
 * ids where it continues a recorded turn.
 */
async function chat(exchange: Exchange, request: GenerationRequest, body: JsonObject): Promise<Answer> {
  const { traits, stream } = request;
  const messages = Array.isArray(body.messages) ? body.messages : [];
  if (!traits || hasMedia(messages)) return wholeChat(exchange, request, body, null);
  const { replica } = exchange.lease;
  const render = async (fields: JsonObject, signal: AbortSignal) => {
    const given = JSON.stringify(sglangBody({ body: { add_generation_prompt: true, ...fields } }, exchange.lease));
    const reply = await replica.connection.ask({ method: 'POST', path: '/tokenize', body: given, signal });
    return idsIn(parseObject(await readText(reply.body))?.tokens);
  };
  const parent = request.parent && (await staysAsSampled(request, body, { replica, render })) ? request.parent : null;
  const shown = parent ? withoutThinking(messages, request.keepThinking, parent.messages) : messages;
  const streams = stream && !traits.parses && isPlainChat(body);
  if (!streams && !parent) return wholeChat(exchange, request, body, null);
  const asked = { ...renderedFields(body), messages: shown };
  const [full, history] = await Promise.all([
    ask(exchange, '/tokenize', asked),
    parent
      ? ask(exchange, '/tokenize', {
          ...asked,
          messages: shown.slice(0, parent.messages),
          continue_final_message: undefined,
          add_generation_prompt: false,
        })
      : null,
  ]);
  const [fullIds, historyIds] = [idsIn(full?.tokens), idsIn(history?.tokens)];
  if (!fullIds) return wholeChat(exchange, request, body, null);
  // If the recorded ids do not fit the history, that is drift.
  const continued =
    parent && historyIds
      ? continuePrompt({ recorded: parent.tokenIds, history: historyIds, full: fullIds, closing: traits.closing })
      : null;
  if (!continued && !streams) return wholeChat(exchange, request, body, null);
  const prompt = continued ?? fullIds;
  request.checkPrompt(prompt);
  const limit = typeof body.max_tokens === 'number' ? body.max_tokens : null;
  const maxNewTokens = continued ? await roomFor(exchange, prompt, limit) : limit;
  const expertsFrom = parent && continued ? newExpertsFrom(parent) : 0;
  if (streams) return fromIds(exchange, request, { body, prompt, maxNewTokens, expertsFrom });
  return wholeChat(
    exchange,
    request,
    { ...body, ...(maxNewTokens === null ? {} : { max_tokens: maxNewTokens }) },
    prompt,
    expertsFrom,
  );
}

/** Lowers the limit of tokens if needed: a prompt of recorded ids may be longer than the one that the agent knows. */
async function roomFor(exchange: Exchange, prompt: readonly number[], limit: number | null): Promise<number | null> {
  if (limit === null) return null;
  const room = await roomAfter(exchange.lease.replica, prompt.length);
  return room === null ? limit : Math.min(limit, room);
}

const ask = (exchange: Exchange, path: string, body: JsonObject): Promise<JsonObject | null> =>
  askIn(exchange, path, body, refused);
