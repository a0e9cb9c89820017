import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { awaitLock, takeLock } from './lock.ts';

test('only one process holds a deployment’s lock, and a waiting process gets it when the holder gives it up', async ({
  signal,
}) => {
  const home = randomUUID();
  const first = await takeLock(home, 'test');
  expect(await takeLock(home, 'test')).toBeNull();
  const waits = Promise.withResolvers<void>();
  const order: string[] = [];
  const second = awaitLock(home, 'test', signal, waits.resolve).then((lock) => (order.push('taken'), lock));
  await waits.promise;
  order.push('released');
  await first?.release();
  await (await second).release();
  expect(order).toEqual(['released', 'taken']);
});

test('a process stops waiting for a deployment’s lock when its signal is aborted', async () => {
  const home = randomUUID();
  const lock = await takeLock(home, 'test');
  const giveUp = new AbortController();
  await expect(awaitLock(home, 'test', giveUp.signal, () => giveUp.abort())).rejects.toThrow();
  await lock?.release();
});
