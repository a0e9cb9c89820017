import { expect, test } from 'vitest';
import { vllm } from '../../engines/vllm/vllm.ts';
import { constraintsOf } from './constraints.ts';
import { sampledBody } from './sampling.ts';

test.each([
  [{}, 'all'],
  [
    {
      temperature: 0.7,
      top_p: 1,
      top_k: -1,
      min_p: 0,
      tool_choice: 'auto',
      response_format: { type: 'text' },
      logit_bias: {},
    },
    'all',
  ],
  [{ top_k: 0, stop: ['x'], seed: 1, tools: [{}], bad_words: [] }, 'all'],
  [{ temperature: 0 }, 'unknown'],
  [{ top_p: 0.99 }, 'mask'],
  [{ top_k: 50 }, 'mask'],
  [{ min_p: 0.01 }, 'mask'],
  [{ presence_penalty: 0.1 }, 'unknown'],
  [{ frequency_penalty: -0.1 }, 'unknown'],
  [{ repetition_penalty: 1.1 }, 'unknown'],
  [{ logit_bias: { 5: 1 } }, 'unknown'],
  [{ bad_words: ['x'] }, 'mask'],
  [{ min_tokens: 3 }, 'mask'],
  [{ response_format: { type: 'json_object' } }, 'mask'],
  [{ tool_choice: 'required' }, 'mask'],
  [{ tool_choice: { type: 'function', function: { name: 'f' } } }, 'mask'],
  [{ guided_regex: 'a+' }, 'mask'],
  [{ structured_outputs: { json: {} } }, 'mask'],
  [{ tools: [{ type: 'function', function: { name: 'f', strict: true } }] }, 'mask'],
  [{ tools: [{ type: 'function', function: { name: 'f', strict: true } }], tool_choice: 'none' }, 'all'],
  [{ top_k: 1 }, 'unknown'],
  [{ top_p: 0.9, presence_penalty: 1 }, 'unknown'],
])('the gateway classifies the tokens that a request with %j may sample from as `%s`', (body, expected) => {
  const isConstrained = constraintsOf(body, 'strict').length > 0;
  expect(vllm.sampledFrom(body, 'processed_logprobs', isConstrained)).toBe(expected);
});

test('the several replies to one request share the tokens that are left in their trial’s budget', () => {
  const asked = (n: number) =>
    sampledBody({ body: {}, maxTokens: null, n }, { runId: null, sampling: {} }, 7).max_tokens;
  expect([1, 3, 7].map(asked)).toEqual([7, 2, 1]);
});
