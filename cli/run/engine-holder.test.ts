import { eq } from 'drizzle-orm';
import { beforeEach, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { noteWait } from '../../store/queries/pool-queue.ts';
import { DEPLOYMENT_POOL, replicas, runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { show } from '../show/show.ts';
import { holderText, readEngineHolder } from './engine-holder.ts';
import type { RunStatus } from './query-status.ts';

const store = useDatabase();
const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
const working: RunStatus = {
  ...{ run: 'owner', phase: 'rollout', iteration: 0, iterations: 1, take: 1, policy_version: 0, reason: null },
  ...{ groups_ended: 0, groups_total: 0, trials: {}, waits_for: null, until: null, groups: [], step: null },
};
const released = 'a person: repair the cause, then resume; its engines will be released at 2026-01-01T00:10:00.000Z';
const blocked = { ...working, phase: 'blocked', waits_for: released };
const paused = { ...working, phase: 'paused', waits_for: 'a person: resume', until: '2026-01-02T00:00:00.000Z' };

beforeEach(async () => {
  for (const table of [replicas, runs]) await store.db.delete(table);
  await store.db.insert(runs).values(['owner', 'first', 'second'].map((id) => ({ id, config })));
  await store.db.insert(replicas).values([
    { url: 'http://own:1', runId: 'owner' },
    { url: 'http://named:1', pool: 'owner', runId: 'owner' },
  ]);
});

test('a run that waits for the engines of a blocked or paused run says which run that is, until when it keeps them, and how to go on', async () => {
  for (const [runId, pool] of [
    ['first', DEPLOYMENT_POOL],
    ['second', 'http://named:1 http://named:2'],
  ] as const) {
    await noteWait(store.db, runId, pool);
    const holder = await readEngineHolder(store.db, runId, async () => blocked);
    expect(holder && holderText(holder)).toBe(
      `run owner, which has the engines, is blocked and waits for ${released}. \`npx trialgate resume owner\` goes on with it, \`npx trialgate cancel owner\` frees the engines now`,
    );
  }
  const holder = await readEngineHolder(store.db, 'first', async () => paused);
  expect(holder && holderText(holder)).toMatch(
    /is paused and waits for a person: resume, at the latest until 2026-01-02T/,
  );
});

test('`show` of a run that waits says it too, also when the blocked run does not answer', async () => {
  await noteWait(store.db, 'first', DEPLOYMENT_POOL);
  await store.db.update(runs).set({ status: 'blocked' }).where(eq(runs.id, 'owner'));
  const waiting = { ...working, run: 'first', phase: 'waiting for engines' };
  const ask = async (runId: string) => (runId === 'first' ? waiting : null);
  expect(await show(store.db, 'first', false, ask)).toContain(
    'waiting for engines\n\nrun owner, which has the engines, is blocked. `npx trialgate resume owner`',
  );
  expect(JSON.parse(await show(store.db, 'first', true, ask))).toMatchObject({
    under_way: { engine_holder: { run: 'owner', phase: 'blocked', waits_for: null, until: null } },
  });
});

test('nothing is said of an owner that works, nor to a run that waits for no engine', async () => {
  await noteWait(store.db, 'first', DEPLOYMENT_POOL);
  expect(await readEngineHolder(store.db, 'first', async () => working)).toBeNull();
  expect(await readEngineHolder(store.db, 'second', async () => blocked)).toBeNull();
  await store.db.delete(replicas);
  expect(await readEngineHolder(store.db, 'first', async () => blocked)).toBeNull();
});
