import { expect, test } from 'vitest';
import { withTemporaryStack } from '../../cli/testing/temporary-deployment.ts';
import { UndiciConnection } from '../node/engine-connection.ts';
import { exactTrial, onSmallModel } from '../testing/exact-trial.ts';

test('a conversation with a real engine drifts, or its record differs from what the agent saw', async ({ signal }) => {
  const faults = await withTemporaryStack(async ({ plan }) => {
    const engine = new UndiciConnection(plan.engines[0] ?? '');
    // This engine has no parser. What it is given and gives, the benchmark and the test below hear.
    const place = onSmallModel({ url: plan.gatewayUrl, adminKey: plan.adminKey }, engine, () => true, signal);
    const plain = { ...place, reading: { ...place.reading, parses: false } };
    const conversations = Array.from({ length: 16 }, async (_, i) => (await exactTrial(plain, `real-${i}`, { seed: i + 1, tools: false, steps: 8 })).faults);
    return Promise.all(conversations).finally(() => engine.close());
  }, signal, ['postgres', 'vllm', 'gateway']);
  expect(faults.flat()).toEqual([]);
});
