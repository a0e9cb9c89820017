import type { Answer } from '../chat/answer.ts';
import type { Call } from '../chat/call.ts';
import type { GatewayDeps } from '../deps.ts';
import { rejection } from '../chat/rejection.ts';
import { readText } from '../engines/connection.ts';
import type { Lease } from '../engines/pool.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';
import { idsOf } from './engine-traits.ts';
import { generate } from './generate.ts';
import { continuePrompt } from './prompt.ts';

const RENDER = '/v1/chat/completions/render';

/**
 * Answers a request that goes on from a recorded turn: the engine renders it, the recorded ids take the place of what it made
 * of the history, and it generates from ids (rule 3). Null when there is no such turn, or this engine cannot: the ordinary
 * route is asked then.
 */
export async function continueByIds(deps: GatewayDeps, call: Call, { replica }: Lease, body: JsonObject): Promise<Answer | null> {
  const { parent } = call.request.past;
  if (!deps.settings.tokenIn || !parent || !Array.isArray(body.messages)) return null;
  const model = typeof body.model === 'string' ? body.model : null;
  const traits = await call.patient(replica.traits(model)).catch(() => null);
  // What a parser would make of a text that was cut by a stop string, only the engine's own route knows.
  if (!traits || (traits.parses && hasStop(body.stop))) return null;
  const render = async (asked: JsonObject): Promise<JsonObject | null> => {
    const request = { method: 'POST', path: RENDER, body: JSON.stringify(asked), signal: call.signal } as const;
    const reply = await call.patient(replica.connection.send(request));
    if (reply.status >= 500) throw await rejection(call, reply);
    const text = await readText(reply.body);
    return reply.status === 200 ? parseObject(text) : null;
  };
  const { stream: _, stream_options: __, ...whole } = body;
  const [full, history] = await Promise.all([
    render(whole),
    render({ ...whole, messages: body.messages.slice(0, parent.messages), add_generation_prompt: false }),
  ]);
  const [fullIds, historyIds] = [idsOf(full), idsOf(history)];
  if (!full || !fullIds || !historyIds || isObject(full.features)) return null;
  const prompt = continuePrompt({ recorded: parent.tokenIds, history: historyIds, full: fullIds, closing: traits.closing });
  if (!prompt) return null;
  call.checkPrompt(prompt);
  return generate(call, replica, { body, rendered: full, prompt, traits });
}

const hasStop = (stop: unknown): boolean => (Array.isArray(stop) ? stop.length > 0 : typeof stop === 'string');
