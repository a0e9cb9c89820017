import { expect, test } from 'vitest';
import { countersOf } from '../../../tests/support/harness/counters-of.ts';
import { eventually } from '../../../tests/support/harness/gateways.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';

const context = useTokenGateways();
const CHAT = '/v1/chat/completions';
const RENDER = '/v1/chat/completions/render';
const GENERATE = '/inference/v1/generate';
const DERENDER = '/v1/chat/completions/derender';
const ask = (text: string) => ({ role: 'user', content: text });

type Options = { parses: boolean };

/** Returns a trial with one recorded turn, and the messages that continue it. */
async function secondTurn({ parses }: Options) {
  await context.serve({ parses });
  // The gateway learns what its engine can do from the second turn of another trial.
  const [another, trial] = [await context.trial(), await context.trial()];
  const turn = async (chat: typeof trial.chat, messages: unknown[]) => {
    context.toy.script = [{ text: 'hello' }];
    const { choices } = await (await chat({ messages })).json();
    return [...messages, choices[0].message, ask('two')];
  };
  await turn(another.chat, await turn(another.chat, [ask('one')]));
  return { trial, messages: await turn(trial.chat, [ask('one')]) };
}

/** Leaves the engine's next request for `path` without an answer. */
function holdAt(path: string) {
  const held = { begun: false, aborted: false };
  context.toy.before = ({ path: asked, response }) => {
    if (asked !== path || held.begun) return;
    held.begun = true;
    response.on('close', () => (held.aborted = !response.writableFinished));
    return new Promise(() => {});
  };
  return held;
}

const inSamples = async (trialId: string): Promise<string[]> =>
  (await context.samplesOf(trialId)).flatMap((sample) => sample.call_ids);

const hangsUp = (parses: boolean, first: boolean, path: string, completion: string | null = null) =>
  [false, true].map((stream) => ({ parses, first, path, stream, completion }));

test.each([
  ...hangsUp(true, true, CHAT),
  ...hangsUp(true, false, RENDER),
  ...hangsUp(true, false, GENERATE),
  ...hangsUp(false, false, GENERATE),
  ...hangsUp(true, false, DERENDER, 'there'),
])(
  'when an agent hangs up during $path, the gateway aborts it and records a cancelled, untrained call (stream: $stream, parses: $parses)',
  async ({ parses, first, path, stream, completion }) => {
    const { trial, messages: later } = await secondTurn({ parses });
    const messages = first ? [ask('another')] : later;
    const agent = new AbortController();
    const held = holdAt(path);
    context.toy.script = [{ text: 'there' }];
    const reply = trial.chat({ messages, stream }, { signal: agent.signal }).then((response) => response.text());
    reply.catch(() => {});
    await eventually(() => held.begun);
    agent.abort();
    await eventually(() => held.aborted);
    const [before, call, ...more] = await eventually(async () => {
      const calls = await trial.calls();
      return calls.length > 1 ? calls : null;
    });
    expect(more).toEqual([]);
    expect(call).toMatchObject({
      status: 'cancelled',
      httpStatus: 499,
      reason: expect.stringMatching(/^agent_disconnected/),
      finishReason: null,
      engine: context.toy.url,
    });
    const generated = context.toy.generated.at(-1)?.completion;
    expect(call?.completionTokenIds && [...call.completionTokenIds]).toEqual(completion === null ? null : generated);
    expect(await inSamples(trial.id)).toEqual([before?.id]);
    expect(countersOf(await context.metrics())).toEqual({
      accepted: 4,
      completed: 3,
      failed: 0,
      cancelled: 1,
      inFlight: 0,
    });
    // Its next request is answered as if nothing had happened.
    context.toy.script = [{ text: 'again' }];
    expect((await trial.chat({ messages: later })).status).toBe(200);
    expect((await trial.calls()).at(-1)).toMatchObject({ status: 'completed', continuation: 'clean' });
  },
);

test('tokens streamed to an agent that hung up are recorded as sampled and not trained on', async () => {
  const { trial, messages } = await secondTurn({ parses: false });
  const agent = new AbortController();
  context.toy.script = [{ text: 'a reply of many tokens' }];
  context.toy.pace = 50;
  let aborted = false;
  context.toy.before = ({ path, response }) => {
    if (path === GENERATE) response.on('close', () => (aborted = !response.writableFinished));
  };
  const response = await trial.chat({ messages, stream: true }, { signal: agent.signal });
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (!text.includes('"content":"r"')) text += decoder.decode((await reader?.read())?.value, { stream: true });
  agent.abort();
  await eventually(() => aborted);
  const [before, call] = await eventually(async () => {
    const calls = await trial.calls();
    return calls.length > 1 ? calls : null;
  });
  const generated = context.toy.generated.at(-1);
  expect(call).toMatchObject({ status: 'cancelled', continuation: 'clean', parentId: before?.id, finishReason: null });
  expect([...(call?.promptTokenIds ?? [])]).toEqual(generated?.prompt);
  const count = call?.completionTokenIds?.length ?? 0;
  expect([...(call?.completionTokenIds ?? [])]).toEqual(generated?.completion.slice(0, count));
  expect(count).toBeGreaterThanOrEqual(3);
  expect(count).toBeLessThan(generated?.completion.length ?? 0);
  expect(call?.logprobs).toHaveLength(count);
  expect(await inSamples(trial.id)).toEqual([before?.id]);
});

test.each([false, true])(
  'a call whose agent hangs up while it waits for a replica is cancelled and never sent to an engine (stream: %s)',
  async (stream) => {
    await secondTurn({ parses: true });
    const before = context.toy.generated.length;
    await context.givePool('run', 'run@1', false);
    const trial = await context.trial({ runId: 'run' });
    const agent = new AbortController();
    const reply = trial.chat({ messages: [ask('one')], stream }, { signal: agent.signal });
    reply.catch(() => {});
    await eventually(async () => countersOf(await context.metrics()).inFlight === 1);
    agent.abort();
    const [call] = await eventually(async () => {
      const calls = await trial.calls();
      return calls.length > 0 ? calls : null;
    });
    expect(call).toMatchObject({ status: 'cancelled', httpStatus: 499, engine: null, promptTokenIds: null });
    context.toy.weightVersion = 'run@1';
    await context.givePool('run', 'run@1');
    context.toy.script = [{ text: 'hello' }];
    expect((await trial.chat({ messages: [ask('one')] })).status).toBe(200);
    expect(context.toy.generated).toHaveLength(before + 1);
    expect(await trial.calls()).toHaveLength(2);
  },
);

test('a call whose agent hangs up while the gateway asks a busy engine for its weight version is cancelled', async () => {
  await context.serve({ route: (_, path) => (path === '/weight_info' ? new Promise(() => {}) : undefined) });
  const trial = await context.trial();
  const agent = new AbortController();
  trial.chat({ messages: [ask('one')] }, { signal: agent.signal }).catch(() => {});
  await eventually(async () => countersOf(await context.metrics()).inFlight === 1);
  agent.abort();
  await eventually(async () => (await trial.calls()).length === 1);
  expect((await trial.calls())[0]).toMatchObject({ status: 'cancelled', httpStatus: 499, engine: null });
  const metrics = await context.metrics();
  expect(countersOf(metrics)).toMatchObject({ cancelled: 1, inFlight: 0 });
  // Placement would avoid an engine to whose load the call still counts.
  expect(metrics[`trialgate_engine_calls_in_flight{engine="${context.toy.url}"}`]).toBe(0);
});
