import { sameIds, startsWith } from '../../../core/token-ids.ts';
import { isObject, isSet, parseObject, type JsonObject } from '../../json.ts';
import { readText, type EngineConnection } from '../connection.ts';
import type { BindsTools, EngineTraits } from '../engine.ts';
import { getJson } from '../get-json.ts';
import { idsIn } from '../read-sampled.ts';

const PROBE = [{ role: 'user', content: 'x' }];
// Some templates need a tool's description.
const TOOL = {
  type: 'function',
  function: { name: 'probe', description: 'probe', parameters: { type: 'object', properties: {} } },
};

/** Tool parsers that take calls out of a text although the request has no tools. */
const ALWAYS_PARSES = new Set(['minimax-m3', 'response_template']);
/** Tool parsers with a grammar for every request with tools. */
const ALWAYS_BINDS = new Set(['glm47', 'inkling', 'kimi_k3', 'response_template']);

/** Returns null when the engine does not tokenize a chat, or its template has no clear end of a reply. Rejects when it cannot be reached. */
export async function readTraits(connection: EngineConnection, signal: AbortSignal): Promise<EngineTraits | null> {
  const tokenize = async (body: JsonObject) => {
    const reply = await connection.ask({ method: 'POST', path: '/tokenize', body: JSON.stringify(body), signal });
    return { status: reply.status, ids: idsIn(parseObject(await readText(reply.body))?.tokens) };
  };
  const render = async (body: JsonObject) => {
    const { status, ids } = await tokenize(body);
    if (status >= 500) throw new Error(`${connection.url}/tokenize answered ${status}`);
    return ids;
  };
  const [open, withTool, closed, info, server] = await Promise.all([
    render({ messages: PROBE, add_generation_prompt: true }),
    // A template that fails on this tool answers with 500, and says nothing of requests without tools.
    tokenize({ messages: PROBE, tools: [TOOL], add_generation_prompt: true }),
    render({ messages: [...PROBE, { role: 'assistant', content: '' }], add_generation_prompt: false }),
    getJson(connection, '/model_info', signal),
    getJson(connection, '/server_info', signal),
  ]);
  if (!open || !closed || closed.length === open.length || !startsWith(closed, open)) return null;
  const { reasoning_parser: reasoning, tool_call_parser: tools } = isObject(info) ? info : {};
  return {
    closing: closed.slice(open.length),
    parses: typeof reasoning === 'string' || (typeof tools === 'string' && ALWAYS_PARSES.has(tools)),
    stopsByIds: true,
    ...returnedBy(isObject(server) ? server : {}),
    bindsTools: bindsTools(tools),
    showsTools: withTool.ids && !sameIds(withTool.ids, open),
  };
}

/**
 * Returns what the engine can return for each token. A mask is longer than `top_k` where ids are equally likely, and a request whose mask is longer than
 * the engine's limit is aborted, so half of the limit is left for these. With speculative decoding most requests for masks are refused.
 */
function returnedBy({
  sampling_mask_max_tokens: longest,
  speculative_algorithm: speculative,
  sampling_backend: backend,
  enable_return_routed_experts: experts,
}: JsonObject): Pick<EngineTraits, 'maskedTopK' | 'experts'> {
  const returnsMasks = typeof longest === 'number' && !isSet(speculative) && backend !== 'ascend';
  return { maskedTopK: returnsMasks ? Math.floor(longest / 2) : 0, experts: experts === true };
}

function bindsTools(parser: unknown): BindsTools {
  if (typeof parser !== 'string') return 'never';
  return ALWAYS_BINDS.has(parser) ? 'always' : 'strict';
}
