import { expect, test } from 'vitest';
import { explainUntrainable } from './explain-untrainable.ts';

const PROCESSED = { temperature: 0.7, top_k: 0, min_p: 0, logprobs_mode: 'processed_logprobs' };
const explained = (sampling: Record<string, unknown>) =>
  explainUntrainable({ untrainable: 'sampling_not_reproducible', sampling });

test('a call whose request forces the form of the reply is explained by the agent’s framework, and what to set', () => {
  const forced = { constraints: ['strict_tools'], constrained_decoding: 'enforce', client: 'Agents/Python 0.24.0' };
  expect(explained({ ...PROCESSED, ...forced })).toMatch(
    /strict_tools.*`constrained_decoding: hint`.*strict_mode=False/,
  );
});

test.each([
  [{ top_p: 0.9 }, /sampled with top_p 0\.9, .* leave that out .*--return-sampling-mask/],
  [
    { top_p: 0.9, presence_penalty: 0.5 },
    /sampled with top_p 0\.9, presence_penalty 0\.5, .* leave these out (?!.*return-sampling-mask)/,
  ],
  [{ temperature: 0 }, /sampled with temperature 0, (?!.*--logprobs-mode)/],
  [{ logprobs_mode: 'raw_logprobs' }, /sampled with temperature 0\.7, .*--logprobs-mode processed_logprobs/],
  [{}, /such as `logit_bias`/],
])('a call that was sampled with %j is explained by that setting', (sampling, sentence) => {
  expect(explained({ ...PROCESSED, ...sampling })).toMatch(sentence);
});

test('every other reason is a sentence, one that this version does not know stays as it is, and a trainable call has none', () => {
  for (const untrainable of [
    'no_token_ids',
    'length_mismatch',
    'bad_logprobs',
    'policy_changed',
    'media_shown',
    'calls_not_shown',
  ])
    expect(explainUntrainable({ untrainable, sampling: {} })).toMatch(/^\w+ \w+ \w+/);
  expect(explainUntrainable({ untrainable: 'truncated_sampling', sampling: {} })).toBe('truncated_sampling');
  expect(explainUntrainable({ untrainable: null, sampling: {} })).toBeNull();
});
