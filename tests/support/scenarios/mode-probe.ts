import type { BindsTools } from '../../../gateway/engines/engine.ts';
import type { LogprobsMode } from '../../../gateway/engines/engine.ts';
import { isObject } from '../../../gateway/json.ts';

/**
 * Returns a fake engine's answer to the gateway's questions about its settings, or null for any other request. `masks` is true when the
 * engine returns sampling masks, `experts` when it returns the chosen experts.
 */
export function probeReply(
  path: string,
  body: Record<string, unknown>,
  mode: LogprobsMode,
  {
    masks = false,
    experts = false,
    bindsTools = 'never',
  }: { masks?: boolean; experts?: boolean; bindsTools?: BindsTools } = {},
): unknown {
  const probed = path === '/v1/chat/completions/render' ? probedTool(body) : null;
  if (probed)
    return {
      token_ids: [1],
      sampling_params: {
        structured_outputs:
          bindsTools === 'always' || (bindsTools === 'strict' && probed.strict === true)
            ? { json: null, structural_tag: 'a tag' }
            : null,
      },
    };
  if (isMaskProbe(path, body))
    return {
      choices: [
        {
          index: 0,
          token_ids: [1],
          ...(masks ? { sampling_mask: [[1]] } : {}),
          ...(experts ? { routed_experts: 'AA==' } : {}),
        },
      ],
    };
  if (path !== '/v1/completions' || body.top_k !== 1 || body.max_tokens !== 1 || body.prompt !== 'x') return null;
  const logprob = mode === 'processed_logprobs' ? 0 : -1.5;
  return {
    object: 'text_completion',
    choices: [{ index: 0, text: 'y', logprobs: { token_logprobs: [logprob], tokens: ['y'] } }],
  };
}

/** Returns the function by which the gateway learns whether the engine holds tool calls to their schema. */
function probedTool({ tools }: Record<string, unknown>): Record<string, unknown> | null {
  const tool: unknown = Array.isArray(tools) ? tools[0] : null;
  return isObject(tool) && isObject(tool.function) && tool.function.name === 'probe' ? tool.function : null;
}

/** True when the gateway asks for one token with all others excluded, to learn whether the engine returns its mask. */
export function isMaskProbe(path: string, { sampling_params: asked }: Record<string, unknown>): boolean {
  return path === '/inference/v1/generate' && isObject(asked) && asked.max_tokens === 1 && asked.top_k === 1;
}
