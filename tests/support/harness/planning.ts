import { and, eq } from 'drizzle-orm';
import { afterAll, beforeAll, beforeEach, expect } from 'vitest';
import type { Database } from '../../../store/database.ts';
import { attempts, groups, iterations, policyVersions, runs, trials, type Outcome } from '../../../store/schema.ts';
import { openAttempt } from '../../../store/queries/open-attempt.ts';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { callRecord } from '../scenarios/call-record.ts';
import { useDatabase } from './use-database.ts';
import { chooseTrials } from '../../../activities/batch/choose-trials.ts';
import { endGroup } from '../../../activities/rollout/end-group.ts';
import { planGroups } from '../../../activities/rollout/plan-groups.ts';
import { readRun } from '../../../activities/run/read-run.ts';
import { runConfig } from '../../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from './sandbox-fixtures.ts';

export let db: Database;
let home: Awaited<ReturnType<typeof temporaryHome>>;
export let tasks: string[];
let serial = 0;
export let runId: string;

/** Sets up a store and three tasks for a test file, and a new run for each test. */
export function usePlanning(): void {
  const store = useDatabase();
  beforeAll(async () => {
    db = store.db;
    home = await temporaryHome();
    tasks = await Promise.all(
      ['a', 'b', 'c'].map(async (name) => (await taskWith(`${home.home}/${name}`, 'true')).folder),
    );
  });
  afterAll(() => home[Symbol.asyncDispose]());
  beforeEach(anotherRun);
}

export const anotherRun = (): void => void (runId = `run${++serial}`);

export async function plan(iteration: number, { take = 1, version = iteration, reopen = false } = {}) {
  const rollout = await planGroups({ db })({ runId, iteration, take, policyVersion: version, reopen });
  expect(rollout.plans.map(({ id }) => id)).toEqual(rollout.open);
  return { ...rollout, open: rollout.plans };
}

export async function begin(settings: Record<string, unknown>): Promise<void> {
  const config = runConfig.parse({
    model: 'm',
    tasks,
    iterations: 10,
    groups_per_iteration: 2,
    group_size: 2,
    ...settings,
  });
  await db.insert(runs).values({ id: runId, config });
  await record(0, null);
  await openTake(0, 1, 0);
}

export async function record(version: number, parentVersion: number | null): Promise<void> {
  await db.insert(policyVersions).values({
    runId,
    version,
    parentVersion,
    stepKey: `${version}`,
    checkpoint: '',
    checkpointSha256: '',
    canary: { token_ids: [], logprobs: [] },
  });
}

export async function openTake(iteration: number, take: number, version: number): Promise<void> {
  await db.insert(iterations).values({ runId, iteration, take, policyVersion: version });
}

/** Ends a group with the given outcomes of its trials. */
export async function end(id: string, ...outcomes: (Outcome | [Outcome, number])[]): Promise<void> {
  const values = outcomes.map((each, trialIndex) => {
    const [outcome, reward] = typeof each === 'string' ? [each, each === 'scored' ? trialIndex : null] : each;
    const isOpen = outcome === 'infra_error';
    return {
      trial: {
        id: `${id}-${trialIndex}`,
        runId,
        groupId: id,
        trialIndex,
        outcome: isOpen ? null : outcome,
        rewards: reward === null ? null : { reward },
      },
      outcome,
    };
  });
  for (const { trial, outcome } of values) {
    await db.insert(trials).values(trial).onConflictDoUpdate({ target: trials.id, set: trial });
    await db
      .insert(attempts)
      .values({ trialId: trial.id, attempt: 1, outcome, reason: `${outcome} of port 1234`, endedAt: new Date() })
      .onConflictDoNothing();
  }
  await endGroup({ db })({ id });
}

/** Starts two trials of a group, with first tokens sampled from `version`. */
export async function sample(id: string, version: number): Promise<void> {
  for (const trialIndex of [0, 1]) {
    const trialId = `${id}-${trialIndex}`;
    await openAttempt(db, { trialId, attempt: 1, runId, groupId: id, trialIndex });
    await recordCalls(db, [callRecord({ trialId, choice: { policyVersion: version } })]);
  }
}

/** Makes a step of what is there: its batch, its version and the next iteration's take. */
export async function step(iteration: number, version = iteration + 1): Promise<string[]> {
  await chooseTrials(db, await readRun(db, runId), { runId, iteration, take: 1 });
  await record(version, iteration);
  await db
    .update(iterations)
    .set({ status: 'done', trainedVersion: version })
    .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration)));
  await openTake(iteration + 1, 1, version);
  const used = await db
    .select()
    .from(groups)
    .where(and(eq(groups.runId, runId), eq(groups.batchIteration, iteration), eq(groups.batchTake, 1)));
  return used.map(({ id }) => id.slice(runId.length + 1)).toSorted();
}
export const names = (list: { id: string }[]) => list.map(({ id }) => id.slice(runId.length + 1));
