import { and, eq, sql } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { recordRun } from '../tests/support/scenarios/recorded-run.ts';
import { useDatabase } from '../tests/support/harness/use-database.ts';
import { markOf, readRunMark } from './queries/read-run-mark.ts';
import { groups, iterations, policyVersions, publications, quarantinedTasks, runs, trials } from './schema.ts';

const store = useDatabase();
const RUN = 'marked';
const mark = () => readRunMark(store.db, RUN);

/** What a view of a run shows and a person can see change. */
const CHANGES: [what: string, change: () => Promise<unknown>][] = [
  ['its status', () => store.db.update(runs).set({ status: 'blocked', reason: 'why' }).where(eq(runs.id, RUN))],
  [
    'a setting',
    () =>
      store.db
        .update(runs)
        .set({ config: { iterations: 9 } })
        .where(eq(runs.id, RUN)),
  ],
  [
    'an iteration that begins',
    () => store.db.insert(iterations).values({ runId: RUN, iteration: 2, take: 1, policyVersion: 2 }),
  ],
  [
    'a group that begins',
    () =>
      store.db.insert(groups).values({
        ...{ id: `${RUN}/2.1/0`, runId: RUN, kind: 'train', iteration: 2, take: 1, ordinal: 0 },
        ...{ task: 't', agent: 'a', size: 2, policyVersion: 2 },
      }),
  ],
  [
    'a trial that begins',
    () => store.db.insert(trials).values({ id: `${RUN}-2.1-0-0`, runId: RUN, groupId: `${RUN}/2.1/0`, trialIndex: 0 }),
  ],
  [
    'a group with a deadline',
    () =>
      store.db.insert(groups).values({
        ...{ id: `${RUN}/2.1/1`, runId: RUN, kind: 'train', iteration: 2, take: 1, ordinal: 1 },
        ...{ task: 't', agent: 'a', size: 2, policyVersion: 2, deadlineAt: new Date('2040-01-02') },
      }),
  ],
  [
    'a deadline that is not the last one',
    () =>
      store.db
        .update(groups)
        .set({ deadlineAt: new Date('2040-01-01') })
        .where(eq(groups.id, `${RUN}/2.1/0`)),
  ],
  [
    'a call',
    () =>
      store.db
        .update(trials)
        .set({ recorded: 1 })
        .where(eq(trials.id, `${RUN}-2.1-0-0`)),
  ],
  [
    'an attempt',
    () =>
      store.db
        .update(trials)
        .set({ attempt: 2 })
        .where(eq(trials.id, `${RUN}-2.1-0-0`)),
  ],
  [
    'a trial that ends',
    () =>
      store.db
        .update(trials)
        .set({ outcome: 'scored' })
        .where(eq(trials.id, `${RUN}-2.1-0-0`)),
  ],
  [
    'a group that ends',
    () =>
      store.db
        .update(groups)
        .set({ endedAt: new Date() })
        .where(eq(groups.id, `${RUN}/2.1/0`)),
  ],
  [
    'an iteration that ends',
    () =>
      store.db
        .update(iterations)
        .set({ status: 'done', endedAt: new Date() })
        .where(and(eq(iterations.runId, RUN), eq(iterations.iteration, 2))),
  ],
  [
    'a policy version',
    () =>
      store.db.insert(policyVersions).values({
        ...{ runId: RUN, version: 9, stepKey: 'step', checkpoint: '/c', checkpointSha256: 'c' },
        canary: { token_ids: [], logprobs: [] },
      }),
  ],
  [
    'a replica that confirms it',
    () =>
      store.db.insert(publications).values({
        ...{ runId: RUN, version: 9, replica: 'u', weightVersion: `${RUN}@9`, checksum: 'c', canaryDifference: 0 },
      }),
  ],
  [
    'a task that is quarantined',
    () => store.db.insert(quarantinedTasks).values({ runId: RUN, task: 't', reason: 'why' }),
  ],
];

test('a run’s mark is another one after each change that its views show, and the same while nothing changes', async () => {
  await recordRun(store.db, RUN, { iterations: 2, groups: 1, size: 2 });
  const marks = [await mark()];
  for (const [what, change] of CHANGES) {
    await change();
    const now = await mark();
    expect([what, marks.includes(now), await mark()]).toEqual([what, false, now]);
    marks.push(now);
  }
});

test('a mark of a long run asks nothing for each group that can no longer change', async () => {
  await recordRun(store.db, 'long', { iterations: 30, groups: 4, size: 1 });
  const { rows } = await store.db.execute<{ 'QUERY PLAN': string }>(sql`explain (analyze) ${markOf('long')}`);
  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  const loops = [...plan.matchAll(/loops=(\d+)/g)].map(([, times]) => Number(times));
  expect([loops.length > 10, loops.filter((times) => times > 40)]).toEqual([true, []]);
});

test('a run that is not there has no mark', async () => {
  expect(await readRunMark(store.db, 'none')).toBeNull();
});
