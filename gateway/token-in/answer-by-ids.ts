import { stringifyExact } from '../../core/exact-json.ts';
import { hasMedia } from '../engines/adapt-messages.ts';
import { ordinaryAnswer, post, type Answer } from '../chat/answer.ts';
import type { Call } from '../chat/call.ts';
import { rejection } from '../chat/rejection.ts';
import { idsIn } from '../chat/tokens.ts';
import type { Replica } from '../engines/replica.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { idsOf, type EngineTraits } from './engine-traits.ts';
import { generate } from './generate.ts';
import type { ConversationState, RecordedTurn } from './conversations.ts';
import { continuePrompt } from './prompt.ts';

const RENDER = '/v1/chat/completions/render';

/**
 * Answers a request by the engine's routes for ids. If the request continues a recorded turn, the engine renders it, the recorded ids
 * replace the rendered history, and the engine generates from ids (invariant 3). Other requests are answered here only when the engine
 * returns sampling masks, which its ordinary routes do not. Otherwise returns null, and the caller uses the ordinary route.
 */
export async function answerByIds(
  call: Call,
  replica: Replica,
  traits: EngineTraits | null,
  body: JsonObject,
): Promise<Answer | null> {
  const { state, route } = call.request;
  if (route === '/v1/completions') return state.parent ? continueText(call, replica, body) : null;
  // Only the engine's own route knows what a parser makes of a text that a stop string cut.
  if (!traits || (traits.parses && hasStop(body.stop)) || !Array.isArray(body.messages) || hasMedia(body.messages))
    return null;
  const { stream: _, stream_options: __, ...whole } = body;
  if (state.parent)
    return continueChat(call, replica, { traits, parent: state.parent, body, whole, messages: body.messages });
  return traits.masks ? openChat(call, replica, traits, body, whole) : null;
}

/** Generates from the ids of the rendered request. */
async function openChat(
  call: Call,
  replica: Replica,
  traits: EngineTraits,
  body: JsonObject,
  whole: JsonObject,
): Promise<Answer | null> {
  const rendered = await ask(call, replica, RENDER, whole);
  const prompt = idsOf(rendered);
  if (!rendered || !prompt || isObject(rendered.features)) return null;
  call.checkPrompt(prompt);
  return generate(call, replica, { body, rendered, prompt, traits });
}

type ContinueOptions = {
  traits: EngineTraits;
  parent: NonNullable<ConversationState['parent']>;
  body: JsonObject;
  whole: JsonObject;
  messages: unknown[];
};

async function continueChat(
  call: Call,
  replica: Replica,
  { traits, parent, body, whole, messages }: ContinueOptions,
): Promise<Answer | null> {
  const [full, history] = await Promise.all([
    ask(call, replica, RENDER, whole),
    ask(call, replica, RENDER, {
      ...whole,
      messages: messages.slice(0, parent.messages),
      add_generation_prompt: false,
    }),
  ]);
  const [fullIds, historyIds] = [idsOf(full), idsOf(history)];
  if (!full || !fullIds || !historyIds || isObject(full.features)) return null;
  // If the recorded ids do not fit the history, that is drift. It is generated from ids only when the mask would be lost otherwise.
  const continued = continuePrompt({
    recorded: parent.tokenIds,
    history: historyIds,
    full: fullIds,
    closing: traits.closing,
  });
  const prompt = continued ?? (traits.masks ? fullIds : null);
  if (!prompt) return null;
  call.checkPrompt(prompt);
  return generate(call, replica, { body, rendered: full, prompt, traits });
}

/** Sends the recorded ids followed by the ids of the added text, because a text completion accepts ids as its prompt. */
async function continueText(call: Call, replica: Replica, body: JsonObject): Promise<Answer | null> {
  const { state } = call.request;
  if (!state.parent || typeof body.prompt !== 'string') return null;
  const after = body.prompt.slice(state.parent.text.length);
  const found = await findStopped(call, replica, after);
  if (!found) return null;
  state.parent = { ...found.turn, messages: 0 };
  const added = after.slice(found.stopped.length);
  const tokenized =
    added === ''
      ? { tokens: [] }
      : await ask(call, replica, '/tokenize', {
          model: modelOf(body) ?? undefined,
          prompt: added,
          add_special_tokens: false,
        });
  const tokens = idsIn(tokenized?.tokens);
  if (!tokens) return null;
  const prompt = [...Array.from(found.turn.tokenIds), ...tokens];
  call.checkPrompt(prompt);
  return ordinaryAnswer(call, await post(call, replica, '/v1/completions', { ...body, prompt }));
}

/** Returns, of the turns with the same text, the one whose ids continue as the agent did. */
async function findStopped(
  call: Call,
  replica: Replica,
  after: string,
): Promise<{ turn: RecordedTurn; stopped: string } | null> {
  const { parent, ambiguousParents } = call.request.state;
  for (const turn of parent ? [parent, ...ambiguousParents] : []) {
    const stopped = await stoppedText(call, replica, turn);
    if (stopped !== null && after.startsWith(stopped)) return { turn, stopped };
  }
  return null;
}

/** Returns the text of the ids after a stop string, which the reply leaves out. An agent that continues the text writes that string itself. */
async function stoppedText(call: Call, replica: Replica, { tokenIds, stopped }: RecordedTurn): Promise<string | null> {
  if (!stopped) return '';
  const reply = await ask(call, replica, '/detokenize', { tokens: Array.from(tokenIds.subarray(-stopped.tokens)) });
  return typeof reply?.prompt === 'string' ? textFrom(reply.prompt, stopped) : null;
}

/** Numbers of characters to compare: of the text, of the detokenized text with its special tokens, and of the last tokens. */
const [COMPARED, SEARCHED, TAIL] = [16, 512, 256];

/** Returns what follows the text from its stop string on. `full` may contain special tokens that the text leaves out. */
export function textFrom(full: string, { text, by }: { text: string; by: string }): string | null {
  const before = text.slice(-COMPARED);
  // The stop string ended within the last tokens.
  for (let at = full.indexOf(by, full.length - by.length - TAIL); at >= 0; at = full.indexOf(by, at + 1)) {
    if (endsAs(full.slice(Math.max(0, at - SEARCHED), at), before)) return full.slice(at);
  }
  return null;
}

/** True when `full` ends with `text`, ignoring special tokens. */
function endsAs(full: string, text: string): boolean {
  const tried = new Set<number>();
  const fits = (end: number, left: number): boolean => {
    const state = end * (COMPARED + 1) + left;
    if (left === 0 || tried.has(state)) return left === 0;
    tried.add(state);
    if (end > 0 && full[end - 1] === text[left - 1] && fits(end - 1, left - 1)) return true;
    const special = specialBefore(full, end);
    return special > 0 && fits(end - special, left);
  };
  return fits(full.length, text.length);
}

const LONGEST = 64;
const OPENINGS: Record<string, string> = { '>': '<', ']': '[' };

/** Returns the length of the special token that ends there, in the forms of vocabularies (`<|im_start|>`, `</s>`, `[INST]`), or 0. */
function specialBefore(full: string, end: number): number {
  const closing = full[end - 1] ?? '';
  const opening = OPENINGS[closing];
  if (opening === undefined) return 0;
  const at = full.lastIndexOf(opening, end - 1);
  const within = at < 0 || end - at > LONGEST ? '' : full.slice(at + 1, end - 1);
  return within === '' || within.includes(closing) || /\s/.test(within) ? 0 : end - at;
}

/** Asks the engine within a call. Returns null when it has no such route or refuses. */
async function ask(call: Call, { connection }: Replica, path: string, body: JsonObject): Promise<JsonObject | null> {
  const reply = await call.withIdleLimit(
    connection.send({ method: 'POST', path, body: stringifyExact(body), signal: call.signal }),
  );
  if (reply.status >= 500) throw await rejection(call, reply);
  const text = await call.readText(reply.body);
  return reply.status === 200 ? parseObject(text) : null;
}

const modelOf = ({ model }: JsonObject): string | null => (typeof model === 'string' ? model : null);

const hasStop = (stop: unknown): boolean => (Array.isArray(stop) ? stop.length > 0 : typeof stop === 'string');
