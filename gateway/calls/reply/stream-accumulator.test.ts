import { expect, test } from 'vitest';
import { readChunk } from '../../engines/vllm/read-reply.ts';
import type { JsonObject } from '../../json.ts';
import { StreamAccumulator } from './stream-accumulator.ts';

const read = (chunk: JsonObject) => readChunk(chunk, { logprobs: true, tokenIds: false, usage: false });

test('an engine’s chunk is kept whole when it has more tokens than a JavaScript function takes arguments', () => {
  const tokens = 200_000;
  const accumulator = new StreamAccumulator({ n: 1, logprobs: true });
  const content = Array(tokens).fill({ token: 'x', logprob: -1 });
  const choice = {
    index: 0,
    delta: { content: 'x' },
    logprobs: { content },
    token_ids: Array(tokens).fill(7),
    finish_reason: null,
  };
  for (const id of ['a', 'b']) accumulator.add(read({ id, choices: [choice] }));
  const { choices, reply } = accumulator.result();
  expect([choices[0]?.completion?.length, choices[0]?.logprobs?.length]).toEqual([2 * tokens, 2 * tokens]);
  expect(reply).toMatchObject({ choices: [{ logprobs: { content: { length: 2 * tokens } } }] });
});

test.each([3_000_000_000, -1, 1, 0.5, '0', { toString: 1 }])(
  'an engine’s chunk with the choice index %j, which the request did not ask for, is a bad engine reply',
  (index) => {
    const accumulator = new StreamAccumulator({ n: 1, logprobs: true });
    expect(() => accumulator.add(read({ id: 'a', choices: [{ index, delta: { content: 'x' } }] }))).toThrow(
      expect.objectContaining({ code: 'bad_engine_reply' }),
    );
  },
);
