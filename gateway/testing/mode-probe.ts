import type { LogprobsMode } from '../engines/logprobs-mode.ts';

/** What a fake engine answers when it is asked of what its log-probabilities are; null for any other request. */
export function probeReply(path: string, body: Record<string, unknown>, mode: LogprobsMode): unknown {
  if (path !== '/v1/completions' || body.top_k !== 1 || body.max_tokens !== 1 || body.prompt !== 'x') return null;
  const logprob = mode === 'processed_logprobs' ? 0 : -1.5;
  return { object: 'text_completion', choices: [{ index: 0, text: 'y', logprobs: { token_logprobs: [logprob], tokens: ['y'] } }] };
}
