import { ApplicationFailure } from '@temporalio/common';
import { tableFromIPC } from 'apache-arrow';
import { eq } from 'drizzle-orm';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { writeBatch } from '../../activities/batch/write-batch.ts';
import type { LoadBaseInput, TrainStepInput } from '../../core/gpu-contract.ts';
import { allActivities } from '../support/harness/all-activities.ts';
import { depsOver } from '../support/harness/deps-over.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { batches, iterations, policyVersions, runs } from '../../store/schema.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { runWithVersion } from '../support/scenarios/run-with-version.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { readRunRecord } from '../../cli/show/run-record.ts';
import { forkRun } from '../../cli/run/fork-run.ts';
import { redoRun } from '../../cli/run/redo-run.ts';
import { rescoreRun } from '../../cli/run/rescore-run.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { updateRun } from '../../cli/run/update-run.ts';

const config = runConfig.parse({ model: 'm', tasks: [resolve('tasks/train')], iterations: 3, optim: { lr: 0.5 } });
const environment = useTemporal();
const store = useDatabase();
let db: Database;
let home: string;
beforeAll(async () => {
  db = store.db;
  home = await mkdtemp(join(tmpdir(), 'trialgate-rescore-'));
  for (const version of [1, 2]) await runWithVersion(db, home, 'first', version, config);
  const sample = {
    tokenIds: Int32Array.of(1, 2),
    lossMask: Int8Array.of(0, 1),
    logprobs: Float32Array.of(0, -1),
    samplingMask: [null, null],
    policyVersions: [null, 1],
    temperature: 1,
    rewards: { tests: 1, style: 0.5 },
    groupId: 'first/1.2/0',
    trialId: 'first-1.2-0-0',
    attempt: 1,
    callIds: ['c'],
    turns: [null, 0],
    turnRewards: {},
    companions: [],
  };
  const file = await writeBatch(join(home, 'batches'), [sample]);
  await db.insert(iterations).values([
    { runId: 'first', iteration: 1, take: 1, status: 'superseded', policyVersion: 1 },
    { runId: 'first', iteration: 1, take: 2, status: 'done', policyVersion: 1, trainedVersion: 2 },
  ]);
  await db.insert(batches).values({ runId: 'first', iteration: 1, take: 2, samples: 1, trials: 1, ...file });
});
afterAll(() => rm(home, { recursive: true }));

const connected = () => ({ client: environment.client, db });

/** Runs `body` with the real records over a fake trainer. */
function during<T>(gpu: Record<string, (input: never) => Promise<unknown>>, body: () => Promise<T>): Promise<T> {
  const world = new FakeWorld();
  const real = allActivities(depsOver({ db, temporal: environment.client, home }));
  const { prepareRun, planBase, openTake, assembleBatch, recordVersion, closeTake, setRunStatus } = real;
  const general = {
    ...world.general(),
    prepareRun,
    planBase,
    openTake,
    assembleBatch,
    recordVersion,
    closeTake,
    setRunStatus,
  };
  return withWorkers(environment, { trialgate: general, host: world.host(), gpu: { ...world.gpu(), ...gpu } }, body);
}
const made = {
  step_key: 'k',
  checkpoint: '/c',
  checkpoint_sha256: 's',
  canary: { token_ids: [], logprobs: [] },
  metrics: { 'train/reward_mean': 0.7 },
  reused: false,
};

test('a rescoring trains on the finished batch from the batch’s parent version under the new reward weights, and samples nothing', async () => {
  const steps: TrainStepInput[] = [];
  let broken = true;
  const trainStep = async (input: TrainStepInput) => {
    steps.push(input);
    if (broken) throw ApplicationFailure.nonRetryable('the disk is full');
    return made;
  };
  await during({ trainStep }, async () => {
    await rescoreRun(connected(), { from: 'first', iteration: 1, weights: { tests: 1, style: 0.2 }, runId: 'styled' });
    await expect(environment.client.workflow.getHandle('styled').result()).rejects.toThrow();
    expect(await readRunRecord(db, 'styled')).toMatchObject({ status: 'failed', reason: 'the disk is full' });
    broken = false;
    await resumeRun(connected(), 'styled');
    await environment.client.workflow.getHandle('styled').result();
  });
  const record = await readRunRecord(db, 'styled');
  expect(record).toMatchObject({
    status: 'completed',
    forked_from: 'first@1',
    rescores: 'first/1.2',
    config: { reward_weights: { tests: 1, style: 0.2 }, iterations: 1 },
  });
  expect(record.iterations).toMatchObject([
    { iteration: 0, take: 1, status: 'done', policy_version: 0, trained_version: 1, batch: { samples: 1, trials: 1 } },
  ]);
  expect(steps[1]).toEqual(steps[0]);
  expect(steps[0]).toMatchObject({
    run_id: 'styled',
    version: 1,
    trainer: { reward_weights: { tests: 1, style: 0.2 }, optim: { lr: 0.5 } },
  });
  const [base] = await db
    .select()
    .from(policyVersions)
    .where(eq(policyVersions.runId, 'styled'))
    .orderBy(policyVersions.version);
  expect(steps[0]?.parent_checkpoint).toBe(base?.checkpoint);
  expect(base?.checkpointSha256).toBe('sha of first@1');
  const [row] = tableFromIPC(await readFile(steps[0]?.batch_path ?? '')).toArray();
  expect(row?.toJSON()).toMatchObject({ trial_id: 'first-1.2-0-0', group_id: 'first/1.2/0' });
});

test.each([
  [
    { iteration: 2, weights: {} },
    'run first has not finished an iteration 2: "npx trialgate show first" lists its iterations',
  ],
  [
    { iteration: 1, weights: { test: 1, style: 1 } },
    'no trial of iteration 1 has a reward named test; its rewards are: style, tests',
  ],
])('a rescoring with %j is refused and leaves no run behind', async (asked, message) => {
  await expect(rescoreRun(connected(), { from: 'first', runId: 'never', ...asked })).rejects.toMatchObject({
    code: 'bad_input',
    message,
  });
  expect(await db.select().from(runs).where(eq(runs.id, 'never'))).toEqual([]);
});

test('a fork loads the checkpoint that it begins from, keeps that run’s settings, and warns that agents use the host’s network', async () => {
  const bases: LoadBaseInput[] = [];
  const loadBase = async (input: LoadBaseInput) => {
    bases.push(input);
    return made;
  };
  const stderr = vi.spyOn(console, 'error').mockImplementation(() => {});
  await during({ loadBase, trainStep: async () => made }, async () => {
    await forkRun(connected(), { runId: 'first', version: 2 }, 'forked', {
      iterations: 0,
      optim: { eps: 0.25 },
      network: 'host',
    });
    await environment.client.workflow.getHandle('forked').result();
  });
  expect(stderr.mock.calls.join()).toContain(
    'WARNING: the agents oneshot reach all that this host reaches (network: host)',
  );
  stderr.mockRestore();
  const [base] = await db.select().from(policyVersions).where(eq(policyVersions.runId, 'forked'));
  expect(bases).toMatchObject([{ run_id: 'forked', model: base?.checkpoint, home, head_dtype: 'model' }]);
  expect(await readRunRecord(db, 'forked')).toMatchObject({
    status: 'completed',
    forked_from: 'first@2',
    rescores: null,
    config: { iterations: 0, optim: { lr: 0.5, eps: 0.25 } },
  });
});

test.each([
  [{ model: 'n' }, '`model` is first@2 in a fork'],
  [{ optim: { lr: 'fast' } }, 'the fork is not valid:\n  optim.lr: '],
  [{ tasks: ['/nowhere'] }, '/nowhere'],
  [{ min_replicas: 9 }, 'min_replicas: 9 replicas must confirm a publication'],
])('a fork with %j is refused and leaves no run behind', async (changes, message) => {
  await expect(forkRun(connected(), { runId: 'first', version: 2 }, 'bad', changes)).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining(message),
  });
  expect(await db.select().from(runs).where(eq(runs.id, 'bad'))).toEqual([]);
});

test('a fork whose name has a wrong form is refused', async () => {
  await expect(forkRun(connected(), { runId: 'first', version: 2 }, 'a b', {})).rejects.toThrow(
    /^run id "a b": use letters/,
  );
});

test('`redo` is refused when the version that the last iteration began from was pruned, and changes nothing', async () => {
  await runWithVersion(db, home, 'pruned', 1, config);
  await db.update(policyVersions).set({ prunedAt: new Date() }).where(eq(policyVersions.runId, 'pruned'));
  const done = { status: 'done' as const, policyVersion: 1, trainedVersion: 2 };
  await db.insert(iterations).values({ runId: 'pruned', iteration: 1, take: 1, ...done });
  await db.update(runs).set({ status: 'completed' }).where(eq(runs.id, 'pruned'));
  const execution = { workflowId: 'pruned', taskQueue: 'nobody', args: [] };
  const handle = await environment.client.workflow.start('trainRun', execution);
  await expect(redoRun(connected(), 'pruned')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('version 1 of run pruned was pruned when the run completed'),
  });
  await handle.terminate();
  const record = await readRunRecord(db, 'pruned');
  expect([record.status, ...record.iterations.map(({ status }) => status)]).toEqual(['completed', 'done']);
});

test('an update to a run that is not under way is refused at once with that reason', async () => {
  await expect(updateRun(environment.client, 'nobody', 'stop')).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringContaining('run nobody is not under way'),
  });
  await expect(updateRun(environment.client, 'styled', 'stop')).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringContaining('run styled is not under way'),
  });
});

test('when two forks take one name at once, one is refused and the other runs', async () => {
  await during({ loadBase: async () => made, trainStep: async () => made }, async () => {
    const forks = await Promise.allSettled(
      [0, 1].map(() => forkRun(connected(), { runId: 'first', version: 2 }, 'twice', { iterations: 0 })),
    );
    const refused = forks.flatMap((fork) => (fork.status === 'rejected' ? [fork.reason] : []));
    expect(refused).toMatchObject([{ code: 'bad_input', message: 'run twice exists: choose another --run' }]);
    await environment.client.workflow.getHandle('twice').result();
  });
  expect(await readRunRecord(db, 'twice')).toMatchObject({ status: 'completed', forked_from: 'first@2' });
});
