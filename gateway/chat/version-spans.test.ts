import { describe, expect, test } from 'vitest';
import { ASK, readStream } from '../testing/harness.ts';
import { useTokenGateways } from '../testing/token-gateway.ts';
import type { TokenEngine } from '../testing/token-engine.ts';

const context = useTokenGateways();

/** A trial of version 1 whose engine is given version 2 while it samples, and says of `spans` which tokens are whose. */
async function whileWeightsChange(engine: Partial<TokenEngine>, spans: TokenEngine['spans']) {
  await context.serve({ label: 'run@1', ...engine });
  await context.givePool('run', 'run@1');
  // What the engine can do is found out by the first call.
  const first = await context.trial({ runId: 'run' });
  await (await first.chat(ASK)).json();
  context.toy.spans = spans;
  context.toy.before = async ({ path }) => {
    if (!/generate|completions$/.test(path)) return;
    // As a publication does it: the gateway has seen that they change before they do.
    await context.givePool('run', 'run@2', false);
    context.toy.label = 'run@2';
  };
  return context.trial({ runId: 'run' });
}

const halves = (tokens: number) => [
  { version: 'run@1', start: 0, end: 3 },
  { version: 'run@2', start: 3, end: tokens },
];

describe.each([
  ['derendered whole', { parses: true }],
  ['by ids', { parses: false }],
  ['on the ordinary route', { scaleOut: false }],
] as const)('weights that change under a reply (%s)', (_, engine) => {
  test.each(['plain', 'streamed', 'a completion'] as const)('a token has another version than the one that sampled it, or its call is not trained on (%s)', async (how) => {
    const trial = await whileWeightsChange(engine, halves);
    const reply = await (how === 'a completion' ? trial.complete({ prompt: 'Say' }) : trial.chat({ ...ASK, stream: how === 'streamed' }));
    expect(reply.status).toBe(200);
    await (how === 'streamed' ? readStream(reply) : reply.json());
    const [call] = await trial.calls();
    const tokens = call?.completionTokenIds?.length ?? 0;
    expect(call).toMatchObject({ status: 'completed', untrainable: null, policyLabel: 'run@1', policyVersion: 1 });
    expect(call?.versionSpans).toEqual([{ version: 1, start: 0, end: 3 }, { version: 2, start: 3, end: tokens }]);
    const { samples } = await (await context.admin('GET', `/sessions/${trial.id}/samples`)).json();
    const sampled = samples[0].policy_versions.filter((version: number | null) => version !== null);
    expect(sampled).toEqual([1, 1, 1, ...Array(tokens - 3).fill(2)]);
  });
});

test('spans with a gap are believed', async () => {
  const trial = await whileWeightsChange({}, (tokens) => [{ version: 'run@1', start: 0, end: 2 }, { version: 'run@2', start: 3, end: tokens }]);
  await (await trial.chat(ASK)).json();
  const [call] = await trial.calls();
  expect(call).toMatchObject({ status: 'completed', versionSpans: null, untrainable: 'policy_changed' });
});

test('a reply that another run’s weights had a part in is handed out', async () => {
  const trial = await whileWeightsChange({}, (tokens) => [{ version: 'run@1', start: 0, end: 2 }, { version: 'other@2', start: 2, end: tokens }]);
  const reply = await trial.chat(ASK);
  expect(reply.status).toBe(502);
  expect((await reply.json()).error.code).toBe('policy_label_mismatch');
  expect((await trial.calls())[0]).toMatchObject({ status: 'failed', reason: expect.stringContaining('policy_label_mismatch') });
});
