import { describe, expect, test } from 'vitest';
import { ADMIN_KEY, IN_WORKERD, readStream } from '../../tests/support/harness/gateways.ts';
import { exactTrial, onToy } from '../../tests/support/scenarios/exact-trial.ts';
import { HALVES } from '../../tests/support/fakes/toy-engine.ts';
import { useTokenGateways } from '../../tests/support/harness/token-gateway.ts';
import { encode, END } from '../../tests/support/fakes/toy-tokenizer.ts';

const context = useTokenGateways();
const ask = (text: string) => ({ role: 'user', content: text });

describe.each([{ parses: true }, { parses: false }])('with an engine that parses tool calls: $parses', (options) => {
  test.each([false, true])(
    'the prompt of each later turn starts with the ids that the engine sampled (stream: %s)',
    async (stream) => {
      await context.serve(options);
      const trial = await context.trial();
      context.toy.script = [{ text: 'hello <|im_end|> there' }, { text: 'cut sho', ends: false }, { text: 'bye' }];
      const messages: unknown[] = [ask('one')];
      for (const next of ['two', 'three']) {
        const reply = await trial.chat({ messages, stream });
        const text = stream
          ? (await readStream(reply)).chunks.map((chunk) => chunk.choices?.[0]?.delta?.content ?? '').join('')
          : (await reply.json()).choices[0].message.content;
        messages.push({ role: 'assistant', content: text, refusal: null }, ask(next));
      }
      await (await trial.chat({ messages, stream })).text();
      const [first, second, third] = context.toy.generated;
      expect(second?.prompt.slice(0, (first?.prompt.length ?? 0) + (first?.completion.length ?? 0))).toEqual([
        ...(first?.prompt ?? []),
        ...(first?.completion ?? []),
      ]);
      expect(third?.prompt.slice(0, second?.prompt.length)).toEqual(second?.prompt);
      // A reply that its length cut is closed before what follows.
      expect(third?.prompt[(second?.prompt.length ?? 0) + (second?.completion.length ?? 0)]).toBe(END);
      const calls = await trial.calls();
      expect(calls.map((call) => call.continuation)).toEqual([null, 'clean', 'clean']);
      expect(calls[1]?.parentId).toBe(calls[0]?.id);
      const samples = await context.samplesOf(trial.id);
      expect(samples).toHaveLength(1);
      expect(samples[0]?.loss_mask.filter(Boolean)).toHaveLength(
        context.toy.generated.reduce((sum, { completion }) => sum + completion.length, 0),
      );
    },
  );

  test('a trial’s record equals what the engine was given and gave, and what the agent saw', async () => {
    await context.serve({ ...options, weightVersion: 'run@1', spans: HALVES });
    await context.givePool('run', 'run@1');
    const place = {
      ...onToy({ url: context.gateway.url, adminKey: ADMIN_KEY }, context.toy),
      opening: { run_id: 'run' },
    };
    // The seed changes only the conversation, which a Worker reads with the same code.
    const seeds = IN_WORKERD ? 8 : 30;
    for (let seed = 1; seed <= seeds; seed++)
      expect((await exactTrial(place, `exact-${options.parses}-${seed}`, { seed })).faults).toEqual([]);
  });
});

test('the gateway counts and records drift with an engine that cannot generate from ids', async () => {
  await context.serve({ scaleOut: false });
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello there' }, { text: 'bye' }, { text: 'summary' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  const messages = [ask('one'), first.choices[0].message, ask('two')];
  await trial.chat({ messages });
  await trial.chat({ messages: [ask('a summary of it all')] });
  const calls = await trial.calls();
  expect(calls.map((call) => call.continuation)).toEqual([null, 'drifted', 'branched']);
  const counted = await context.metrics();
  expect(
    ['clean', 'drifted', 'branched'].map((how) => counted[`trialgate_call_continuations_total{continuation="${how}"}`]),
  ).toEqual([0, 1, 1]);
  expect((await context.samplesOf(trial.id)).map((sample) => sample.call_ids)).toEqual(calls.map((call) => [call.id]));
});

test.each([undefined, [{ type: 'function', function: { name: 'ls', description: '', parameters: {} } }]])(
  'a second gateway process continues the conversation that the first has recorded (tools: %j)',
  async (tools) => {
    await context.serve();
    const trial = await context.trial();
    context.toy.script = [{ text: 'hello there' }, { text: 'bye' }];
    const first = await (await trial.chat({ messages: [ask('one')], tools })).json();
    await context.restart();
    await trial.chat({ messages: [ask('one'), first.choices[0].message, ask('two')], tools }, {});
    const reply = await context.chat(trial.id, trial.key, {
      messages: [ask('one'), first.choices[0].message, ask('two')],
      tools,
    });
    expect(reply.status).toBe(200);
    expect((await trial.calls()).map((call) => call.continuation)).toEqual([null, 'clean', 'clean']);
  },
);

test('a later turn that calls tools ends with `tool_calls` like a first turn and does not show its end token', async () => {
  await context.serve();
  const trial = await context.trial();
  const tools = [{ type: 'function', function: { name: 'ls' } }];
  context.toy.script = [
    { text: 'hi' },
    { text: '<tool_call>{"name": "ls", "arguments": {}}</tool_call>' },
    { text: 'done' },
  ];
  const messages: unknown[] = [ask('one')];
  const ends = [];
  for (const next of [ask('two'), { role: 'tool', tool_call_id: 'call', content: 'a.txt' }, ask('end')]) {
    const { choices } = await (await trial.chat({ messages, tools })).json();
    ends.push([choices[0].finish_reason, choices[0].message.content]);
    messages.push(choices[0].message, next);
  }
  expect(ends).toEqual([
    ['stop', 'hi'],
    ['tool_calls', ''],
    ['stop', 'done'],
  ]);
  expect((await trial.calls()).map((call) => call.continuation)).toEqual([null, 'clean', 'clean']);
});

test('of two recorded replies with the same text, a request continues the one whose text after the stop string matches', async () => {
  await context.serve();
  const trial = await context.trial();
  context.toy.script = [{ text: 'aaer', spelled: encode }, { text: 'aae', spelled: encode }, { text: 'end' }];
  const { choices } = await (await trial.complete({ prompt: 'one ', n: 2, stop: 'e' })).json();
  expect(choices).toMatchObject([
    { text: 'aa', stop_reason: 'e' },
    { text: 'aa', stop_reason: 'e' },
  ]);
  await trial.complete({ prompt: 'one aaeb' });
  const [, second, last] = await trial.calls();
  expect(last).toMatchObject({ continuation: 'clean', parentId: second?.id });
});

test('a call whose history was edited after a recorded turn is recorded as branched', async () => {
  await context.serve();
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello' }, { text: 'there' }, { text: 'you' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  const messages = [ask('one'), first.choices[0].message, ask('two')];
  await trial.chat({ messages });
  await trial.chat({ messages: [...messages, { role: 'assistant', content: 'an edited reply' }, ask('three')] });
  expect((await trial.calls()).map((call) => call.continuation)).toEqual([null, 'clean', 'branched']);
});

test.each(['/generate', '/derender'])(
  'a stream gets keep-alive comments until its reply is assembled from ids, and is recorded like any other (%s is slow)',
  async (slow) => {
    await context.serve();
    await context.restart({ settings: { keepAliveMs: 30 } });
    const trial = await context.trial();
    context.toy.script = [{ text: 'hello' }, { text: 'a reply that takes a while' }];
    const first = await (await trial.chat({ messages: [ask('one')] })).json();
    context.toy.before = async ({ path }) =>
      void (path.endsWith(slow) && (await new Promise((resolve) => setTimeout(resolve, 250))));
    const text = await (
      await trial.chat({ messages: [ask('one'), first.choices[0].message, ask('two')], stream: true })
    ).text();
    expect(text.match(/^: keep-alive$/gm)?.length).toBeGreaterThan(2);
    expect(text).toContain('a reply that takes a while');
    const calls = await trial.calls();
    expect(calls.map((call) => call.continuation)).toEqual([null, 'clean']);
    expect(calls.map((call) => [...(call.completionTokenIds ?? [])])).toEqual(
      context.toy.generated.map(({ completion }) => completion),
    );
  },
);

test('an engine whose routes for ids fail still answers later turns, which are recorded as drifted', async () => {
  await context.serve({ fault: (path) => (path.includes('render') ? 500 : null) });
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello' }, { text: 'bye' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  expect((await trial.chat({ messages: [ask('one'), first.choices[0].message, ask('two')] })).status).toBe(200);
  expect((await trial.calls()).map((call) => call.continuation)).toEqual([null, 'drifted']);
});

test('a stream by ids that lasts longer than the idle limit is not cut while tokens come', async () => {
  await context.serve({ parses: false });
  await context.restart({ settings: { idleMs: 1_000 } });
  const trial = await context.trial();
  context.toy.script = [{ text: 'hello' }, { text: 'a reply of many tokens' }];
  const first = await (await trial.chat({ messages: [ask('one')] })).json();
  context.toy.pace = 100;
  const stream = await readStream(
    await trial.chat({ messages: [ask('one'), first.choices[0].message, ask('two')], stream: true }),
  );
  expect([stream.done, stream.broken]).toEqual([true, false]);
});
