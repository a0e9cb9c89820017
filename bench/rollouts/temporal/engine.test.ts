import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SlotEngine } from './engine.ts';

const never = new AbortController().signal;

test('the benchmark’s engine: a trial that is cut frees its slot, which goes to the next trial that still waits', async () => {
  const engine = new SlotEngine(1);
  const [first, second] = [new AbortController(), new AbortController()];
  const order: string[] = [];
  const holding = engine.sample(60, first.signal).then((sampled) => order.push(`first ${sampled?.completed}`));
  const leaving = engine.sample(60, second.signal).then((sampled) => order.push(`second ${sampled}`));
  const waiting = engine.sample(0.01, never).then((sampled) => order.push(`third ${sampled?.completed}`));
  second.abort();
  await leaving;
  first.abort();
  await Promise.all([holding, waiting]);
  expect(order).toEqual(['second null', 'first false', 'third true']);
});

test('the benchmark’s engine: no trial samples while weights are published, and each trial keeps the version of its first token', async () => {
  const engine = new SlotEngine(2);
  const before = engine.sample(0.1, never);
  const publishing = engine.publish(0.3, 7);
  const after = engine.sample(0.01, never);
  let isDone = false;
  void before.then(() => (isDone = true));
  await delay(200);
  expect(isDone).toBe(false);
  await publishing;
  expect((await before)?.version).toBe(0);
  expect((await after)?.version).toBe(7);
});
