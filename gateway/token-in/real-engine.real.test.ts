import { expect, test } from 'vitest';
import { withTemporaryStack } from '../../cli/testing/temporary-deployment.ts';
import { UndiciConnection } from '../node/engine-connection.ts';
import { exactTrial, onSmallModel } from '../testing/exact-trial.ts';
import { withVllm } from '../testing/own-vllm.ts';
import { placeBefore } from '../testing/place-before.ts';
import { TestPostgres } from '../../store/testing/postgres.ts';

test('a conversation with a real engine drifts, or its record differs from what the agent saw', async ({ signal }) => {
  const faults = await withTemporaryStack(async ({ plan }) => {
    const engine = new UndiciConnection(plan.engines[0] ?? '');
    // This engine has no parser. What it is given and gives, the benchmark and the test below hear.
    const place = onSmallModel({ url: plan.gatewayUrls[0] ?? '', adminKey: plan.adminKey }, engine, () => true, signal);
    const plain = { ...place, reading: { ...place.reading, parses: false } };
    const conversations = Array.from({ length: 16 }, async (_, i) => (await exactTrial(plain, `real-${i}`, { seed: i + 1, tools: false, steps: 8 })).faults);
    return Promise.all(conversations).finally(() => engine.close());
  }, signal, ['postgres', 'vllm', 'gateway']);
  expect(faults.flat()).toEqual([]);
});

/** So few layers fill a call with spaces for long. */
const LONG_ENOUGH = 400;

test('a real engine\'s tool calls are recorded otherwise than it gave them, or what goes on from them drifts', async ({ signal }) => {
  const postgres = await TestPostgres.create();
  try {
    await withVllm(async (url) => {
      const place = await placeBefore(url, postgres.url, signal);
      const conversations = Array.from({ length: 8 }, (_, i) => exactTrial({ ...place, forcing: { ...place.forcing, max_tokens: LONG_ENOUGH } }, `calling-${i}`, { seed: i + 1, steps: 4 }));
      const seen = await Promise.all(conversations).finally(place.close);
      expect([...seen.flatMap(({ faults }) => faults), ...place.unheard()]).toEqual([]);
      const steps = seen.flatMap((each) => each.steps.map(({ calls, after }) => ({ calls: calls.length, before: each.steps[after?.step ?? -1]?.calls.length ?? 0 })));
      expect(steps.filter(({ calls }) => calls > 0)).not.toHaveLength(0);
      expect(steps.filter(({ before }) => before > 0)).not.toHaveLength(0);
    }, signal, { layers: 4 });
  } finally {
    await postgres.close();
  }
});
