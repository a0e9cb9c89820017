import { CALLS_NOT_SHOWN } from '../../../store/calls/calls-not-shown.ts';
import type { Untrainable } from '../recording/trainable.ts';
import { constrainedAdvice } from './framework-modes.ts';
import { NEUTRAL } from './sampling.ts';

const SENTENCES: Record<Exclude<Untrainable, 'sampling_not_reproducible'>, string> = {
  no_token_ids:
    'the engine did not return the token ids of the prompt and the reply: use vLLM or SGLang (docs/gateway.md)',
  length_mismatch:
    'the engine returned another number of tokens than of log-probabilities, so it is not known which belong together',
  bad_logprobs: 'the engine returned a log-probability that is not finite or is above 0',
  policy_changed: 'new weights came while it was sampled, and the engine did not say which tokens are of which version',
  media_shown:
    'the model was shown an image, a sound, a video or a file, and the trainer computes text alone: leave it out of the request, or let a tool describe it in words',
  [CALLS_NOT_SHOWN]:
    'the model sampled several tool calls, and the agent was shown only the first, because it asks for one at a time: let it take several (without `parallel_tool_calls: false` or `disable_parallel_tool_use`)',
};

/** The part of a recorded call that says why it is not trained. */
type UntrainableCall = { untrainable: string | null; sampling: Record<string, unknown> };

/** Returns why a call is not trained and what to do about that, for a person; null for a call that can be trained. */
export function explainUntrainable({ untrainable: code, sampling }: UntrainableCall): string | null {
  if (code === 'sampling_not_reproducible') return notReproducible(sampling);
  return code !== null && isExplained(code) ? SENTENCES[code] : code;
}

const isExplained = (code: string): code is keyof typeof SENTENCES => Object.hasOwn(SENTENCES, code);

function notReproducible({ constraints, client, ...sampling }: UntrainableCall['sampling']): string {
  if (Array.isArray(constraints) && sampling['constrained_decoding'] !== 'hint')
    return constrainedAdvice(constraints.map(String), typeof client === 'string' ? client : null);
  const beyond = settingsBeyond(sampling);
  const names = beyond.map(([name]) => name);
  if (names.length === 0)
    return 'a field of its request changes from which tokens the engine samples (such as `logit_bias` or `bad_words`), and the trainer cannot reproduce that: leave it out (docs/gateway.md, "Sampling masks")';
  const instead = names.every((name) => MASKED.has(name))
    ? ', or use an engine that returns sampling masks (vLLM with --return-sampling-mask)'
    : names.every((name) => name === 'temperature') && sampling['temperature'] !== 0
      ? ', or start vLLM with --logprobs-mode processed_logprobs'
      : '';
  const set = beyond.map(([name, value]) => `${name} ${value}`).join(', ');
  return `it was sampled with ${set}, which the trainer cannot reproduce: leave ${names.length === 1 ? 'that' : 'these'} out of the agent's requests and of \`sampling\` in the run file${instead} (docs/gateway.md, "Sampling masks")`;
}

/** The settings that exclude tokens. With a sampling mask the trainer can reproduce them. */
const MASKED = new Set(['top_p', 'top_k', 'min_p', 'min_tokens']);

/** Returns the settings in force under which the recorded log-probabilities are not those of the plain softmax (`engines/sampled-from.ts`). */
function settingsBeyond(sampling: UntrainableCall['sampling']): [name: string, value: number][] {
  const isProcessed = sampling['logprobs_mode'] === 'processed_logprobs';
  return Object.entries({ temperature: 1, ...NEUTRAL, min_tokens: 0 }).flatMap(
    ([name, neutral]): [string, number][] => {
      const value = sampling[name];
      if (typeof value !== 'number' || value === neutral || (name === 'top_k' && value === 0)) return [];
      return name === 'temperature' && value !== 0 && isProcessed ? [] : [[name, value]];
    },
  );
}
