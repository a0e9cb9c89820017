import { expect, test } from 'vitest';
import { inTurns } from './in-turns.ts';

test('each number is worked on once', async () => {
  const done: number[] = [];
  await inTurns(5, { atOnce: 2, signal: new AbortController().signal }, async (index) => void done.push(index));
  expect(done).toEqual([0, 1, 2, 3, 4]);
});

test('work that was interrupted is not taken for done, and what had begun has ended', async () => {
  const controller = new AbortController();
  const done: number[] = [];
  const turns = inTurns(200, { atOnce: 2, signal: controller.signal }, async (index) => {
    if (index === 4) controller.abort(new Error('interrupted'));
    await Promise.resolve();
    done.push(index);
  });
  await expect(turns).rejects.toThrow('interrupted');
  expect(done).toEqual([0, 1, 2, 3, 4]);
});
