import { sameIds, startsWith } from '../../../core/token-ids.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, isSet, parseObject, type JsonObject } from '../../json.ts';
import { readText, type EngineConnection } from '../connection.ts';
import type { EngineTraits } from '../engine.ts';
import { idsIn } from '../read-sampled.ts';

const PROBE = [{ role: 'user', content: 'x' }];

/** Returns null when the engine lacks the routes for ids, or its template has no clear end of a reply. Rejects when it cannot be reached. */
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
  const [{ status }, returned, ofTools] = await Promise.all([
    post('/v1/chat/completions/derender', { generate_response: reply }),
    readReturned(post, open),
    readOfTools(send, open),
  ]);
  return { closing, parses: status !== 200, stopsByIds: false, ...returned, ...ofTools };
}

type Post = (path: string, body: JsonObject) => Promise<{ status: number; body: JsonObject | null }>;

/**
 * Samples one token to learn two settings that not all engines report (`--return-sampling-mask`, `--enable-return-routed-experts`; the
 * route that reports them is there in development mode only).
 */
async function readReturned(post: Post, prompt: number[]): Promise<Pick<EngineTraits, 'maskedTopK' | 'experts'>> {
  const { body } = await post('/inference/v1/generate', {
    token_ids: prompt,
    sampling_params: { max_tokens: 1, temperature: 1, top_k: 1 },
  });
  const [choice] = choicesOf(body);
  return {
    maskedTopK: Array.isArray(choice?.sampling_mask) ? Infinity : 0,
    experts: typeof choice?.routed_experts === 'string',
  };
}

/**
 * Renders a request with a tool, to see whether the prompt differs from the one without it, and whether the engine adds a grammar when the
 * model may choose whether to call tools. An engine that cannot render tools answers no such request.
 */
async function readOfTools(send: Post, without: number[]): Promise<Pick<EngineTraits, 'bindsTools' | 'showsTools'>> {
  const rendered = async (strict: boolean) => {
    const tool = {
      type: 'function',
      function: {
        name: 'probe',
        // Some templates need it.
        description: 'probe',
        parameters: { type: 'object', properties: {} },
        ...(strict ? { strict } : {}),
      },
    };
    return (await send('/v1/chat/completions/render', { messages: PROBE, tools: [tool] })).body;
  };
  const free = await rendered(false);
  const ids = idsOf(free);
  const showsTools = ids && !sameIds(ids, without);
  if (isBound(free)) return { bindsTools: 'always', showsTools };
  return { bindsTools: isBound(await rendered(true)) ? 'strict' : 'never', showsTools };
}

function isBound(rendered: JsonObject | null): boolean {
  const sampling = rendered?.sampling_params;
  return (
    isObject(sampling) &&
    isObject(sampling.structured_outputs) &&
    Object.values(sampling.structured_outputs).some(isSet)
  );
}

export function idsOf(rendered: JsonObject | null): number[] | null {
  const ids = idsIn(rendered?.token_ids);
  return ids && ids.length > 0 ? ids : null;
}
