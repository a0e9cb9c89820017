import { expect, test } from 'vitest';
import { readTrainableCalls } from '../../../store/queries/read-trainable-calls.ts';
import { readStream } from '../../../tests/support/harness/gateways.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';

const context = useTokenGateways();
const ask = (text: string) => ({ role: 'user', content: text });
const around = (id: number) => [id + 1, id, 70_000];

test.each([
  { parses: false, stream: false },
  { parses: false, stream: true },
  { parses: true, stream: false },
  { parses: true, stream: true },
])(
  'the sampling mask of truncated sampling is recorded with each token, from the first turn on: %j',
  async ({ parses, stream }) => {
    await context.serve({ parses, mask: around });
    const trial = await context.trial();
    context.toy.script = [{ text: 'hello' }, { text: 'bye' }];
    const first = await (await trial.chat({ messages: [ask('one')], top_p: 0.8 })).json();
    const reply = await trial.chat({
      messages: [ask('one'), first.choices[0].message, ask('two')],
      top_p: 0.8,
      stream,
    });
    if (stream)
      expect((await readStream(reply)).chunks.some((chunk) => JSON.stringify(chunk).includes('sampling_mask'))).toBe(
        false,
      );
    else expect(await reply.text()).not.toContain('sampling_mask');
    expect(first.choices[0]).not.toHaveProperty('sampling_mask');
    const calls = await trial.calls();
    expect(calls.map((call) => [call.untrainable, call.continuation])).toEqual([
      [null, null],
      [null, 'clean'],
    ]);
    expect(calls[0]?.sampling).toMatchObject({ top_p: 0.8, top_k: 100 });
    const trainable = await readTrainableCalls(context.db, { trialId: trial.id, attempt: 1 });
    const sampled = context.toy.generated.map(({ completion }) =>
      completion.map((id) => around(id).toSorted((a, b) => a - b)),
    );
    expect(trainable.map(({ samplingMask }) => samplingMask)).toEqual(sampled);
  },
);

test.each([
  { how: 'with its mask', can: 'is', mask: around, untrainable: null },
  { how: 'without a mask', can: 'is not', mask: null, untrainable: 'sampling_not_reproducible' },
])('a reply that a grammar constrains and that comes $how $can trainable', async ({ mask, untrainable }) => {
  await context.serve({ mask });
  const trial = await context.trial();
  context.toy.script = [{ text: '<tool_call>{"name": "ls", "arguments": {}}</tool_call>' }];
  const tools = [{ type: 'function', function: { name: 'ls' } }];
  const reply = await (await trial.chat({ messages: [ask('one')], tools, tool_choice: 'required' })).json();
  expect(reply.choices[0].message.tool_calls).toMatchObject([{ function: { name: 'ls' } }]);
  expect(await trial.calls()).toMatchObject([{ untrainable }]);
});

test('a sampling mask that lacks the sampled token is not recorded, and its call is untrainable', async () => {
  await context.serve({ mask: (id) => [id + 1] });
  const trial = await context.trial();
  await trial.chat({ messages: [ask('one')], top_p: 0.8 });
  expect(await trial.calls()).toMatchObject([{ untrainable: 'sampling_not_reproducible', samplingMask: null }]);
});

test('with an engine that returns sampling masks, a request for temperature 0 samples only the most likely token', async () => {
  await context.serve({ mask: (id) => [id] });
  const trial = await context.trial();
  expect((await trial.chat({ messages: [ask('one')], temperature: 0 })).status).toBe(200);
  expect(await trial.calls()).toMatchObject([
    { sampling: { temperature: 1, top_k: 1 }, untrainable: 'sampling_not_reproducible' },
  ]);
});
