import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { calls, trials } from '../../store/schema.ts';
import { SECRET, useGateway } from '../../tests/support/harness/gateways.ts';
import { measureEngine } from './measure-engine.ts';

const gateway = useGateway();
const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
const { signal } = new AbortController();
const measure = (most: number) =>
  measureEngine(most, config, { db: gateway.db, gatewayUrl: gateway.gateway.url, secret: SECRET }, signal);

test('the engines are measured with 1, 8 and 64 calls at once, in a trial that is closed afterwards', async () => {
  const speed = await measure(64);
  expect(speed.map((stage) => stage.calls)).toEqual([1, 8, 64]);
  expect(speed.every(({ tokensPerSecond }) => tokensPerSecond > 0)).toBe(true);
  const [trial] = await gateway.db.select().from(trials).where(eq(trials.task, 'measure the engines'));
  expect(trial).toMatchObject({ outcome: 'cancelled', runId: null, usedCalls: 73 });
  expect(await gateway.db.$count(calls, eq(calls.trialId, trial?.id ?? ''))).toBe(73);
});

test('no more calls are measured at once than sandboxes run', async () => {
  expect((await measure(4)).map((stage) => stage.calls)).toEqual([1, 4]);
});

test('engines that refuse the calls end the measurement with their answer', async () => {
  gateway.engine.fault = 'bad_request';
  await expect(measure(4)).rejects.toMatchObject({
    code: 'engine_unavailable',
    message: expect.stringContaining('cannot be measured'),
  });
});
