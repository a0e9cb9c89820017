import { continuePrompt } from '../../conversations/prompt.ts';
import { isObject, parseObject, type JsonObject } from '../../json.ts';
import { ask, post } from '../answer.ts';
import { ROUTES } from '../completion.ts';
import type { Answer, EngineTraits, GenerationRequest } from '../engine.ts';
import type { Exchange } from '../exchange.ts';
import { hasMedia } from '../adapt-messages.ts';
import { readText } from '../connection.ts';
import { continueText } from '../continue-text.ts';
import { idsIn, newExpertsFrom } from '../read-sampled.ts';
import { staysAsSampled, withoutThinking } from '../thinking.ts';
import { generate } from './generate-from-ids.ts';
import { ordinaryAnswer } from './ordinary-answer.ts';
import { idsOf } from './traits.ts';

const RENDER = '/v1/chat/completions/render';

/**
 * Answers a request by the engine's routes for ids. If the request continues a recorded turn, the engine renders it, the recorded ids
 * replace the rendered history, and the engine generates from ids (invariant 3). Other requests are answered here only when the engine
 * returns something that its ordinary routes do not: sampling masks, or in a stream the chosen experts. Otherwise returns null, and the
 * caller uses the ordinary route.
 */
export async function answerByIds(
  exchange: Exchange,
  request: GenerationRequest,
  body: JsonObject,
): Promise<Answer | null> {
  const { kind, parent, traits } = request;
  if (kind === 'text') return parent ? goOnWithText(exchange, request, body) : null;
  // Only the engine's own route knows what a parser makes of a text that a stop string cut.
  if (!traits || (traits.parses && hasStop(body.stop)) || !Array.isArray(body.messages) || hasMedia(body.messages))
    return null;
  if (!parent && !isRicherByIds(request, traits)) return null;
  const { stream: _, stream_options: __, ...whole } = body;
  return parent
    ? continueChat(exchange, request, { traits, parent, body, whole, messages: body.messages })
    : openChat(exchange, request, traits, body, whole);
}

/** True when the route for ids returns what the ordinary route of this request does not. */
const isRicherByIds = ({ stream }: GenerationRequest, { maskedTopK, experts }: EngineTraits): boolean =>
  maskedTopK > 0 || (experts && stream);

/** Generates from the ids of the rendered request. */
async function openChat(
  exchange: Exchange,
  request: GenerationRequest,
  traits: EngineTraits,
  body: JsonObject,
  whole: JsonObject,
): Promise<Answer | null> {
  const rendered = await ask(exchange, RENDER, whole);
  const prompt = idsOf(rendered);
  if (!rendered || !prompt || isObject(rendered.features)) return null;
  request.checkPrompt(prompt);
  return generate(exchange, request, { body, rendered, prompt, traits, expertsFrom: 0 });
}

type ContinueOptions = {
  traits: EngineTraits;
  parent: NonNullable<GenerationRequest['parent']>;
  body: JsonObject;
  whole: JsonObject;
  messages: unknown[];
};

async function continueChat(
  exchange: Exchange,
  request: GenerationRequest,
  { traits, parent, body, whole, messages }: ContinueOptions,
): Promise<Answer | null> {
  const { replica } = exchange.lease;
  const render = async (fields: JsonObject, signal: AbortSignal) => {
    const asked = JSON.stringify({ model: body.model, ...fields });
    const reply = await replica.connection.ask({ method: 'POST', path: RENDER, body: asked, signal });
    return idsOf(parseObject(await readText(reply.body)));
  };
  const renderedAnew = () => (isRicherByIds(request, traits) ? openChat(exchange, request, traits, body, whole) : null);
  if (!(await staysAsSampled(request, body, { replica, render }))) return renderedAnew();
  const shown = withoutThinking(messages, request.keepThinking, parent.messages);
  const [full, history] = await Promise.all([
    ask(exchange, RENDER, { ...whole, messages: shown }),
    ask(exchange, RENDER, {
      ...whole,
      messages: shown.slice(0, parent.messages),
      add_generation_prompt: false,
    }),
  ]);
  const [fullIds, historyIds] = [idsOf(full), idsOf(history)];
  if (!full || !fullIds || !historyIds || isObject(full.features)) return null;
  // If the recorded ids do not fit the history, that is drift. It is generated from ids only when something would be lost otherwise.
  const continued = continuePrompt({
    recorded: parent.tokenIds,
    history: historyIds,
    full: fullIds,
    closing: traits.closing,
  });
  if (!continued) return renderedAnew();
  request.checkPrompt(continued);
  return generate(exchange, request, {
    body,
    rendered: full,
    prompt: continued,
    traits,
    expertsFrom: newExpertsFrom(parent),
  });
}

/** Sends the recorded ids followed by the ids of the added text, because a text completion accepts ids as its prompt. */
async function goOnWithText(exchange: Exchange, request: GenerationRequest, body: JsonObject): Promise<Answer | null> {
  const continued = await continueText(request, body.prompt, {
    detokenize: async (tokens) => {
      const reply = await ask(exchange, '/detokenize', { tokens });
      return typeof reply?.prompt === 'string' ? reply.prompt : null;
    },
    tokenize: async (prompt) => {
      const asked = { model: modelOf(body) ?? undefined, prompt, add_special_tokens: false };
      return idsIn((await ask(exchange, '/tokenize', asked))?.tokens);
    },
  });
  if (!continued) return null;
  const { prompt, turn } = continued;
  request.checkPrompt(prompt);
  const expertsFrom = request.traits?.experts ? newExpertsFrom(turn) : 0;
  const reply = await post(exchange, ROUTES.text, {
    ...body,
    prompt,
    ...(expertsFrom > 0 ? { routed_experts_prompt_start: expertsFrom } : {}),
  });
  return { ...ordinaryAnswer(exchange, reply, request.wants, expertsFrom), parent: turn };
}

const modelOf = ({ model }: JsonObject): string | null => (typeof model === 'string' ? model : null);

const hasStop = (stop: unknown): boolean => (Array.isArray(stop) ? stop.length > 0 : typeof stop === 'string');
