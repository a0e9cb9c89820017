import { eq } from 'drizzle-orm';
import { beforeEach, expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { groups, iterations, policyVersions, runs, trials, type DropReason, type Outcome } from '../../store/schema.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { planGroups } from '../rollout/plan-groups.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { batchMetrics } from './batch-metrics.ts';
import { chooseTrials } from './choose-trials.ts';
import { collectSamples } from './collect-samples.ts';

const store = useDatabase();
const config = runConfig.parse({
  model: 'm',
  tasks: ['t'],
  iterations: 9,
  groups_per_iteration: 1,
  group_size: 3,
  group_quorum: 2,
  max_staleness: 1,
  stragglers: 'carry_over',
});
let serial = 0;
let runId: string;

beforeEach(async () => {
  runId = `run${++serial}`;
  await store.db.insert(runs).values({ id: runId, config });
});

/** Adds a group with these outcomes of its trials; null is a running trial. */
async function group(
  iteration: number,
  ordinal: number,
  ends: (Outcome | null)[],
  { dropped }: { dropped?: DropReason } = {},
): Promise<string> {
  const id = `${runId}/${iteration}.1/${ordinal}`;
  await store.db.insert(groups).values({
    id,
    runId,
    kind: 'train',
    iteration,
    take: 1,
    ordinal,
    task: 't',
    agent: 'a',
    size: ends.length,
    policyVersion: iteration,
    dropped,
    endedAt: new Date(),
  });
  for (const [trialIndex, outcome] of ends.entries()) {
    const trialId = `${id}-${trialIndex}`;
    await openAttempt(store.db, { trialId, attempt: 1, runId, groupId: id, trialIndex });
    await sample(trialId, 1, iteration);
    if (outcome) await end(trialId, outcome);
  }
  return id;
}

const sample = (trialId: string, attempt: number, policyVersion: number) =>
  recordCalls(store.db, [
    callRecord({
      trialId,
      attempt,
      promptTokenIds: Int32Array.of(1, 2),
      choice: { completionTokenIds: Int32Array.of(3, 4), logprobs: new Float32Array(2), policyVersion },
    }),
  ]);

const end = (trialId: string, outcome: Outcome, attempt?: number) =>
  sealAttempt(store.db, {
    trialId,
    attempt,
    outcome,
    final: outcome === 'cancelled',
    rewards: outcome === 'scored' ? { reward: 1 } : undefined,
  });

/** Makes the batch of an iteration's take, from the version of the same number, and returns its counts. */
async function batch(iteration: number, take = 1): Promise<{ used?: number; lost?: number }> {
  const parent = iteration === 0 ? null : iteration - 1;
  await store.db
    .insert(policyVersions)
    .values({
      runId,
      version: iteration,
      parentVersion: parent,
      stepKey: `${iteration}`,
      checkpoint: '',
      checkpointSha256: '',
      canary: { token_ids: [], logprobs: [] },
    })
    .onConflictDoNothing();
  await open(iteration, take);
  const key = { runId, iteration, take };
  await chooseTrials(store.db, config, key);
  const { used_trials: used, dropped_trials: lost } = await batchMetrics(
    store.db,
    config,
    await collectSamples(store.db, config, key, iteration),
  );
  return { used, lost };
}

const open = (iteration: number, take = 1) =>
  store.db.insert(iterations).values({ runId, iteration, take, policyVersion: iteration }).onConflictDoNothing();

test('a straggler that became too old to train on counts as dropped once, in the first batch after its end', async () => {
  const id = await group(0, 0, ['scored', 'scored', null]);
  expect(await batch(0)).toEqual({ used: 2, lost: 0 });
  await end(`${id}-2`, 'cancelled');
  await group(1, 0, ['scored', 'scored']);
  expect(await batch(1)).toEqual({ used: 2, lost: 1 });
  await group(2, 0, ['scored', 'scored']);
  expect(await batch(2)).toEqual({ used: 2, lost: 0 });
});

test('a straggler that one batch counted as dropped is not counted again by a later batch that trains on another trial of its group', async () => {
  const id = await group(0, 0, ['scored', 'scored', null]);
  await batch(0);
  await end(`${id}-2`, 'cancelled');
  await group(1, 0, ['scored', 'scored']);
  expect(await batch(1)).toEqual({ used: 2, lost: 1 });
  await openAttempt(store.db, { trialId: `${id}-3`, attempt: 1, runId, groupId: id, trialIndex: 3 });
  await sample(`${id}-3`, 1, 1);
  await end(`${id}-3`, 'scored');
  await group(2, 0, ['scored', 'scored']);
  expect(await batch(2)).toEqual({ used: 3, lost: 0 });
});

test('a straggler that ended too late to be trained on counts as dropped, and so does one without a reward', async () => {
  const id = await group(0, 0, ['scored', 'scored', null, null]);
  await batch(0);
  await group(1, 0, ['scored', 'scored']);
  await batch(1);
  await end(`${id}-2`, 'scored');
  await end(`${id}-3`, 'verifier_error');
  await group(2, 0, ['scored', 'scored']);
  expect(await batch(2)).toEqual({ used: 2, lost: 2 });
});

test.each(['no_spread', 'stale'] as const)(
  'the trials of a group that was dropped as %s in a later iteration count as dropped once and are not trained on',
  async (dropped) => {
    await group(0, 0, ['scored', 'scored']);
    const late = await group(0, 1, [null, null, null]);
    await store.db.update(groups).set({ endedAt: null }).where(eq(groups.id, late));
    expect(await batch(0)).toEqual({ used: 2, lost: 0 });
    for (const trialIndex of [0, 1]) await end(`${late}-${trialIndex}`, 'scored');
    await store.db.update(groups).set({ endedAt: new Date(), dropped }).where(eq(groups.id, late));
    await group(1, 0, ['scored', 'scored']);
    expect(await batch(1)).toEqual({ used: 2, lost: 2 });
    // Its straggler ends after that.
    await end(`${late}-2`, 'scored');
    await group(2, 0, ['scored', 'scored']);
    expect(await batch(2)).toEqual({ used: 2, lost: 1 });
    await group(3, 0, ['scored', 'scored']);
    expect(await batch(3)).toEqual({ used: 2, lost: 0 });
  },
);

test('a new take counts only its own dropped trials, and those that the superseded batch counted stay counted', async () => {
  await group(0, 0, ['scored', 'scored'], { dropped: 'no_spread' });
  await group(0, 1, ['scored', 'scored']);
  await batch(0);
  await group(0, 2, ['scored', 'scored']);
  await group(1, 0, ['scored', 'agent_error'], { dropped: 'no_spread' });
  await group(0, 3, ['cancelled'], { dropped: 'failed' });
  expect(await batch(1)).toEqual({ used: 2, lost: 3 });
  await store.db.update(iterations).set({ status: 'superseded' }).where(eq(iterations.iteration, 1));
  expect(await batch(1, 2)).toEqual({ used: 2, lost: 1 });
});

test('a trial that counted as dropped and is tried again after a resume is trained on', async () => {
  const failed = await group(0, 0, ['infra_error', 'infra_error'], { dropped: 'failed' });
  await group(0, 1, ['scored', 'scored']);
  expect(await batch(0)).toEqual({ used: 2, lost: 2 });
  await open(1);
  await planGroups({ db: store.db })({ runId, iteration: 1, take: 1, policyVersion: 1, reopen: true, isOver: true });
  for (const trialIndex of [0, 1]) {
    const trialId = `${failed}-${trialIndex}`;
    await openAttempt(store.db, { trialId, attempt: 2 });
    await sample(trialId, 2, 1);
    await end(trialId, 'scored', 2);
  }
  await store.db.update(groups).set({ endedAt: new Date() }).where(eq(groups.id, failed));
  expect(await batch(1)).toEqual({ used: 2, lost: 0 });
  expect(await store.db.select().from(trials).where(eq(trials.groupId, failed))).toMatchObject([
    { batchIteration: 1 },
    { batchIteration: 1 },
  ]);
});
