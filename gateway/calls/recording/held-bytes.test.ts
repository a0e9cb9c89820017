import { expect, test } from 'vitest';
import type { JsonObject } from '../../json.ts';
import { heldBytes } from './held-bytes.ts';

const TOKENS = 1000;
const entry = (i: number) => ({ token: `token ${i}`, logprob: -0.1234567 * i, bytes: [97, 98, 99, 100] });
const entries = (count: number) => Array.from({ length: count }, (_, i) => entry(i));

function heldBy(reply: JsonObject, tokens: number): number {
  const ids = Array.from({ length: tokens }, (_, i) => i);
  return heldBytes(100, {
    prompt: null,
    choices: [{ completion: ids, logprobs: ids, mask: null, versions: null, finishReason: null }],
    counted: null,
    reply,
  });
}

test.each([0, 1, 5, 20])(
  'the gateway counts a reply with %i `top_logprobs` a token as at least as many bytes as it holds',
  (alternatives) => {
    const content = entries(TOKENS).map((each) => ({ ...each, top_logprobs: entries(alternatives) }));
    const chat = { choices: [{ logprobs: { content } }] };
    expect(heldBy(chat, TOKENS)).toBeGreaterThan(JSON.stringify(chat).length);
    const tops = entries(TOKENS).map(() =>
      Object.fromEntries(entries(alternatives).map(({ token, logprob }) => [token, logprob])),
    );
    const text = {
      choices: [{ logprobs: { token_logprobs: entries(TOKENS).map(({ logprob }) => logprob), top_logprobs: tops } }],
    };
    expect(heldBy(text, TOKENS)).toBeGreaterThan(JSON.stringify(text).length);
  },
);

test('`top_logprobs` that a client asked for and the engine left out do not count as held bytes', () => {
  expect(heldBy({ choices: [{ logprobs: { content: [{ ...entry(1), top_logprobs: [] }] } }] }, 1)).toBeLessThan(1000);
  expect(heldBy({ choices: [{ logprobs: null }] }, 1)).toBeLessThan(1000);
});
