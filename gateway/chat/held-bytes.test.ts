import { expect, test } from 'vitest';
import { heldBytes } from './held-bytes.ts';

const TOKENS = 1000;

/** A reply as it is parsed: what it takes in memory is more than its text. */
function replyWith(alternatives: number) {
  const entry = (i: number) => ({ token: `token ${i}`, logprob: -0.1234567 * i, bytes: [97, 98, 99, 100] });
  const content = Array.from({ length: TOKENS }, (_, i) => ({ ...entry(i), top_logprobs: Array.from({ length: alternatives }, (_item, j) => entry(j)) }));
  return { choices: [{ logprobs: { content } }] };
}

test.each([0, 1, 5, 20])('replies that hold log-probabilities with %i alternatives a token are let into a full memory', (alternatives) => {
  const reply = replyWith(alternatives);
  const ids = Array.from({ length: TOKENS }, (_, i) => i);
  const choices = [{ completion: ids, logprobs: ids, versions: null, finishReason: null }];
  const wants = { logprobs: true, tokenIds: false, usage: true };
  const sampled = { logprobs: true, top_logprobs: alternatives };
  const held = heldBytes({ request: { size: 100, wants }, sampled, ending: { prompt: null, choices, counted: null, reply } });
  expect(held).toBeGreaterThan(JSON.stringify(reply).length);
});

test('replies that hold the whole vocabulary at each token are let into a full memory', () => {
  const choices = [{ completion: [1, 2], logprobs: [1, 2], versions: null, finishReason: null }];
  const held = (sampled: Record<string, unknown>) =>
    heldBytes({ request: { size: 100, wants: { logprobs: true, tokenIds: false, usage: true } }, sampled, ending: { prompt: null, choices, counted: null, reply: null } });
  expect(held({ logprobs: true, top_logprobs: -1 })).toBeGreaterThan(held({ logprobs: true, top_logprobs: 150_000 }));
  expect(held({ logprobs: -1 })).toBeGreaterThan(held({ logprobs: 150_000 }));
});

test('a call that asks for endlessly many alternatives takes all memory there is', () => {
  const choices = [{ completion: [1], logprobs: [1], versions: null, finishReason: null }];
  const request = { size: 100, wants: { logprobs: true, tokenIds: false, usage: true } };
  const held = heldBytes({ request, sampled: JSON.parse('{"logprobs":true,"top_logprobs":1e999}'), ending: { prompt: null, choices, counted: null, reply: null } });
  expect(held).toBeLessThan(2 ** 30);
});
