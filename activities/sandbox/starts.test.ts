import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { SandboxError } from './errors.ts';
import { Starts } from './starts.ts';

const never = new AbortController().signal;
const undo = async (): Promise<void> => {};

test('no more sandboxes start at the same time than the limit, and the others start in their order', async () => {
  const starts = new Starts({ atOnce: 2 });
  const [order, most]: [number[], { now: number; most: number }] = [[], { now: 0, most: 0 }];
  const start = (number: number) => async (): Promise<void> => {
    order.push(number);
    most.now += 1;
    most.most = Math.max(most.most, most.now);
    await sleep(5);
    most.now -= 1;
  };
  await Promise.all(
    [0, 1, 2, 3, 4, 5, 6].map((number) => starts.run({ what: 's', signal: never, start: start(number), undo })),
  );
  expect(order).toEqual([0, 1, 2, 3, 4, 5, 6]);
  expect(most.most).toBe(2);
});

test('a start that waits can be cancelled, and does not use up the turn of another', async () => {
  const starts = new Starts({ atOnce: 1 });
  const end = await starts.begin(never);
  const stop = new AbortController();
  const cancelled = starts.run({ what: 's', signal: stop.signal, start: async () => 'ran', undo });
  const next = starts.run({ what: 's', signal: never, start: async () => 'ran', undo });
  stop.abort(new Error('cancelled'));
  await expect(cancelled).rejects.toThrow('cancelled');
  end();
  end();
  expect(await next).toBe('ran');
});

test('a start that hangs fails as the host’s fault after its time, frees its turn, and is undone if it ends later', async () => {
  const starts = new Starts({ atOnce: 1, seconds: 0.02 });
  const [hanging, undone] = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
  const first = starts.run({
    what: 'sandbox t.1',
    signal: never,
    start: () => hanging.promise,
    undo: async (late) => undone.resolve(late),
  });
  const second = starts.run({ what: 'sandbox t.2', signal: never, start: async () => 'ran', undo });
  const error = await first.catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(SandboxError);
  expect(String(error)).toContain('sandbox t.1 did not start within 0.02 s');
  expect(await second).toBe('ran');
  hanging.resolve('late');
  expect(await undone.promise).toBe('late');
});

test('a start that fails gives its own error and frees its turn', async () => {
  const starts = new Starts({ atOnce: 1 });
  const start = async () => Promise.reject(new Error('no room'));
  await expect(starts.run({ what: 's', signal: never, start, undo })).rejects.toThrow('no room');
  expect(await starts.run({ what: 's', signal: never, start: async () => 'ran', undo })).toBe('ran');
});
