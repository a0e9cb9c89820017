import { readText, type EngineConnection } from '../engines/connection.ts';
import { startsWith } from '../../core/token-ids.ts';
import { isSet, type BindsTools } from '../chat/constraints.ts';
import { idsIn } from '../chat/tokens.ts';
import { isObject, parseObject, type JsonObject } from '../json.ts';

/** The facts about an engine that token-in needs. */
export type EngineTraits = {
  /** The ids that the chat template writes after a reply. */
  closing: number[];
  /** True when it takes tool calls or reasoning out of the text, so that a stream of plain text would differ from its own reply. */
  parses: boolean;
  /** True when the engine returns the ids that could be sampled at each token (vLLM's `--return-sampling-mask`). */
  masks: boolean;
  /** Which tool calls it holds to their schema by a grammar. */
  bindsTools: BindsTools;
};

const PROBE = [{ role: 'user', content: 'x' }];

/** Returns null when the engine lacks these routes, or its template has no clear end of a reply. Rejects when it cannot be reached. */
export async function readTraits(
  connection: EngineConnection,
  model: string | null,
  signal: AbortSignal,
): Promise<EngineTraits | null> {
  const send: Post = async (path, body) => {
    const reply = await connection.ask({
      method: 'POST',
      path,
      body: JSON.stringify({ ...(model === null ? {} : { model }), ...body }),
      signal,
    });
    return { status: reply.status, body: parseObject(await readText(reply.body)) };
  };
  const post: Post = async (path, body) => {
    const reply = await send(path, body);
    if (reply.status >= 500) throw new Error(`${connection.url}${path} answered ${reply.status}`);
    return reply;
  };
  const render = async (body: JsonObject) => idsOf((await post('/v1/chat/completions/render', body)).body);
  const open = await render({ messages: PROBE });
  if (!open) return null;
  const closed = await render({
    messages: [...PROBE, { role: 'assistant', content: '' }],
    add_generation_prompt: false,
  });
  if (!closed || closed.length === open.length || !startsWith(closed, open)) return null;
  const closing = closed.slice(open.length);
  const reply = { choices: [{ index: 0, token_ids: closing.slice(0, 1), finish_reason: 'stop' }] };
  const [{ status }, masks, bindsTools] = await Promise.all([
    post('/v1/chat/completions/derender', { generate_response: reply }),
    returnsMasks(post, open),
    readBindsTools(send),
  ]);
  return { closing, parses: status !== 200, masks, bindsTools };
}

type Post = (path: string, body: JsonObject) => Promise<{ status: number; body: JsonObject | null }>;

/** Samples one token to learn the setting, which no route reports. */
async function returnsMasks(post: Post, prompt: number[]): Promise<boolean> {
  const { body } = await post('/inference/v1/generate', {
    token_ids: prompt,
    sampling_params: { max_tokens: 1, temperature: 1, top_k: 1 },
  });
  const choices = body?.choices;
  return Array.isArray(choices) && isObject(choices[0]) && Array.isArray(choices[0].sampling_mask);
}

/**
 * Renders a request to see whether the engine adds a grammar when the model may choose whether to call tools. An engine that cannot render
 * tools answers no such request.
 */
async function readBindsTools(send: Post): Promise<BindsTools> {
  const isBound = async (strict: boolean) => {
    const tool = {
      type: 'function',
      function: { name: 'probe', parameters: { type: 'object', properties: {} }, ...(strict ? { strict } : {}) },
    };
    const { body } = await send('/v1/chat/completions/render', { messages: PROBE, tools: [tool] });
    const sampling = body?.sampling_params;
    return (
      isObject(sampling) &&
      isObject(sampling.structured_outputs) &&
      Object.values(sampling.structured_outputs).some(isSet)
    );
  };
  if (await isBound(false)) return 'always';
  return (await isBound(true)) ? 'strict' : 'never';
}

export function idsOf(rendered: JsonObject | null): number[] | null {
  const ids = idsIn(rendered?.token_ids);
  return ids && ids.length > 0 ? ids : null;
}
