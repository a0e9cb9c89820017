import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { groups, runs, trials } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { openInTurn } from './open-in-turn.ts';

const store = useDatabase();

async function openingIn(
  runId: string,
): Promise<(trialId: string, atOnce: number | null) => Promise<'opened' | 'waits'>> {
  await store.db.insert(runs).values({ id: runId, config: {} });
  const group = { id: `${runId}/0`, runId, kind: 'train' as const, ordinal: 0, size: 8, task: 't', agent: 'a' };
  await store.db.insert(groups).values({ ...group, policyVersion: 0 });
  return async (trialId, atOnce) => {
    const controller = new AbortController();
    // A trial that has to wait ends this try.
    const onWait = () => controller.abort(new Error('waits'));
    const input = { trialId, attempt: 1, runId, groupId: group.id, trialIndex: Number(trialId.at(-1)) };
    return openInTurn(store.db, input, { atOnce, signal: controller.signal, onWait }).then(
      () => 'opened',
      (error: unknown) => {
        expect(error).toMatchObject({ message: 'waits' });
        return 'waits';
      },
    );
  };
}

test('of trials that are opened at once, as many as may run are opened, and another one when one has ended', async () => {
  const open = await openingIn('bounded');
  const ids = Array.from({ length: 6 }, (_, i) => `bounded-${i}`);
  const ends = await Promise.all(ids.map((id) => open(id, 2)));
  expect(ends.filter((end) => end === 'opened')).toHaveLength(2);
  const opened = ids.filter((_, i) => ends[i] === 'opened');
  const waiting = ids.filter((_, i) => ends[i] === 'waits');
  expect(await store.db.$count(trials, eq(trials.runId, 'bounded'))).toBe(2);
  await sealAttempt(store.db, { trialId: opened[0] ?? '', outcome: 'scored' });
  expect(await open(waiting[0] ?? '', 2)).toBe('opened');
  expect(await open(waiting[1] ?? '', 2)).toBe('waits');
});

test('a trial’s own earlier attempt takes no place from it, and neither do open trials of groups that have ended', async () => {
  const open = await openingIn('left');
  expect(await open('left-0', 1)).toBe('opened');
  expect(await open('left-0', 1)).toBe('opened');
  expect(await open('left-1', 1)).toBe('waits');
  await store.db.update(groups).set({ endedAt: new Date() }).where(eq(groups.runId, 'left'));
  expect(await open('left-1', 1)).toBe('opened');
});

test('without a bound all trials are opened', async () => {
  const open = await openingIn('free');
  expect(await Promise.all(['free-0', 'free-1', 'free-2'].map((id) => open(id, null)))).toEqual(
    Array(3).fill('opened'),
  );
});
