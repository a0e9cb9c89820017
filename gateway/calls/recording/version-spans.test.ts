import { describe, expect, test } from 'vitest';
import { ASK, readStream } from '../../../tests/support/harness/gateways.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';
import type { TokenEngine } from '../../../tests/support/fakes/token-engine.ts';

const context = useTokenGateways();

/** Returns a trial of version 1 whose engine gets version 2 while it samples, and reports `spans`. */
async function whileWeightsChange(engine: Partial<TokenEngine>, spans: TokenEngine['spans']) {
  await context.serve({ weightVersion: 'run@1', ...engine });
  await context.givePool('run', 'run@1');
  // A later turn continues these by their ids.
  const trial = await context.trial({ runId: 'run' });
  const { choices } = await (await trial.chat(ASK)).json();
  const { choices: texts } = await (await trial.complete({ prompt: 'Say' })).json();
  context.toy.spans = spans;
  const asked: string[] = [];
  context.toy.before = async ({ path }) => {
    if (!/generate|completions$/.test(path)) return;
    asked.push(path);
    // The order of a publication: the gateway sees the change before the engine has the new weights.
    await context.givePool('run', 'run@2', false);
    context.toy.weightVersion = 'run@2';
  };
  const next = { ...ASK, messages: [...ASK.messages, choices[0].message, { role: 'user', content: 'Again' }] };
  return { trial, next, nextText: { prompt: `Say${texts[0].text}!` }, asked };
}

const halves = (tokens: number) => [
  { version: 'run@1', start: 0, end: 3 },
  { version: 'run@2', start: 3, end: tokens },
];

const [BY_IDS, ORDINARY] = ['/inference/v1/generate', '/v1/chat/completions'];

describe.each([
  ['derendered whole', { parses: true }, BY_IDS],
  ['by ids', { parses: false }, BY_IDS],
  ['on the ordinary route', { scaleOut: false }, ORDINARY],
] as const)('when an engine’s weights change in the middle of a reply (%s)', (_, engine, route) => {
  test.each(['plain', 'streamed', 'a completion'] as const)(
    'each token is recorded and trained under the policy version that sampled it (%s)',
    async (how) => {
      const { trial, next, nextText, asked } = await whileWeightsChange(engine, halves);
      const reply = await (how === 'a completion'
        ? trial.complete(nextText)
        : trial.chat({ ...next, stream: how === 'streamed' }));
      expect(reply.status).toBe(200);
      await (how === 'streamed' ? readStream(reply) : reply.json());
      expect(asked).toEqual([how === 'a completion' ? '/v1/completions' : route]);
      const call = (await trial.calls()).at(-1);
      const tokens = call?.completionTokenIds?.length ?? 0;
      expect(call).toMatchObject({ status: 'completed', untrainable: null, weightVersion: 'run@1', policyVersion: 1 });
      expect(call?.versionSpans).toEqual([
        { version: 1, start: 0, end: 3 },
        { version: 2, start: 3, end: tokens },
      ]);
      const { samples } = await (await context.admin('GET', `/sessions/${trial.id}/samples`)).json();
      const trained = samples.find(({ call_ids }: { call_ids: string[] }) => call_ids.at(-1) === call?.id);
      expect(trained.policy_versions.slice(-tokens)).toEqual([1, 1, 1, ...Array(tokens - 3).fill(2)]);
    },
  );
});

test('a call for which the engine reports version spans with a gap is not trained on', async () => {
  const { trial, next } = await whileWeightsChange({}, (tokens) => [
    { version: 'run@1', start: 0, end: 2 },
    { version: 'run@2', start: 3, end: tokens },
  ]);
  await (await trial.chat(next)).json();
  expect((await trial.calls()).at(-1)).toMatchObject({
    status: 'completed',
    versionSpans: null,
    untrainable: 'policy_changed',
  });
});

test('a call whose reply was sampled in part by another run’s weights gets 502 and is recorded as failed', async () => {
  const { trial, next } = await whileWeightsChange({}, (tokens) => [
    { version: 'run@1', start: 0, end: 2 },
    { version: 'other@2', start: 2, end: tokens },
  ]);
  const reply = await trial.chat(next);
  expect(reply.status).toBe(502);
  expect((await reply.json()).error.code).toBe('weight_version_mismatch');
  expect((await trial.calls()).at(-1)).toMatchObject({
    status: 'failed',
    reason: expect.stringContaining('weight_version_mismatch'),
  });
});

describe('for a session outside any run', () => {
  test('the gateway records each call under the weight version that its reply reports, also just after the engine got another one', async () => {
    await context.serve({ weightVersion: 'run@1' });
    const trial = await context.trial();
    for (const weightVersion of ['run@1', 'run@2', 'default']) {
      context.toy.weightVersion = weightVersion;
      expect((await trial.chat(ASK)).status).toBe(200);
    }
    expect(await trial.calls()).toMatchObject([
      { weightVersion: 'run@1', policyVersion: 1, versionSpans: null },
      { weightVersion: 'run@2', policyVersion: 2, versionSpans: null },
      { weightVersion: 'default', policyVersion: null, versionSpans: null },
    ]);
  });

  test('the gateway records the version spans of a reply whose weights changed in the middle', async () => {
    await context.serve({ weightVersion: 'run@1', spans: halves });
    const trial = await context.trial();
    expect((await trial.chat(ASK)).status).toBe(200);
    const [call] = await trial.calls();
    expect(call).toMatchObject({ weightVersion: 'run@1', policyVersion: 1 });
    expect(call?.versionSpans).toEqual([
      { version: 1, start: 0, end: 3 },
      { version: 2, start: 3, end: call?.completionTokenIds?.length },
    ]);
  });

  test('the gateway records a reply that reports no version under a weight version that is at most a second old', async () => {
    await context.serve({ weightVersion: 'run@1', spans: () => [] });
    const trial = await context.trial();
    await trial.chat(ASK);
    context.toy.weightVersion = 'run@2';
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    await trial.chat(ASK);
    expect(await trial.calls()).toMatchObject([
      { weightVersion: 'run@1', policyVersion: null },
      { weightVersion: 'run@2', policyVersion: null },
    ]);
  });
});
