import type { JsonObject } from '../../json.ts';
import { asProtocolId } from '../call-ids.ts';
import { usageOf } from '../usage.ts';

type Parts = {
  callId: string;
  created: unknown;
  model: unknown;
  status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  output: JsonObject[];
  usage: unknown;
  error?: JsonObject;
};

/** Builds OpenAI's response object: the request's settings and the reply. */
export function responseObject(
  asked: JsonObject,
  { callId, created, model, status, output, usage, error }: Parts,
): JsonObject {
  const hasTools = Array.isArray(asked.tools) && asked.tools.length > 0;
  const or = (name: string, other: unknown) => asked[name] ?? other;
  return {
    id: asProtocolId('resp', callId),
    object: 'response',
    created_at: created,
    status,
    background: false,
    error: error ?? null,
    incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
    instructions: or('instructions', null),
    max_output_tokens: or('max_output_tokens', null),
    max_tool_calls: or('max_tool_calls', null),
    metadata: or('metadata', null),
    model,
    output,
    parallel_tool_calls: or('parallel_tool_calls', true),
    previous_response_id: or('previous_response_id', null),
    presence_penalty: or('presence_penalty', 0),
    frequency_penalty: or('frequency_penalty', 0),
    reasoning: or('reasoning', null),
    service_tier: or('service_tier', 'auto'),
    store: or('store', true),
    temperature: or('temperature', 1),
    text: or('text', null),
    tool_choice: hasTools ? or('tool_choice', 'auto') : 'none',
    tools: or('tools', []),
    top_logprobs: or('top_logprobs', null),
    top_p: or('top_p', 1),
    truncation: or('truncation', 'disabled'),
    usage: usage ? responseUsage(usage) : null,
    user: or('user', null),
  };
}

function responseUsage(usage: unknown): JsonObject {
  const { prompt, completion, cached, reasoning } = usageOf(usage);
  return {
    input_tokens: prompt,
    input_tokens_details: { cached_tokens: cached ?? 0 },
    output_tokens: completion,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: prompt + completion,
  };
}
