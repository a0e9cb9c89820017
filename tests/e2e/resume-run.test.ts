import { ApplicationFailure } from '@temporalio/common';
import { eq } from 'drizzle-orm';
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { iterations, runs } from '../../store/schema.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { hold } from '../histories/stage.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { cancelRun } from '../../cli/run/cancel-run.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { until } from '../support/harness/until.ts';
import { startRun } from '../../cli/run/start-run.ts';

const environment = useTemporal();
const store = useDatabase();

/** A run of one iteration with one group of two trials. */
const oneGroup = (task: string) =>
  runConfig.parse({ model: 'm', tasks: [task], iterations: 1, groups_per_iteration: 1, group_size: 2 });

/** Makes a run of one group with a task of its own, and a world in which nothing fails. Disposal removes the task. */
async function smallRun() {
  const folder = await temporaryHome();
  const { folder: task } = await taskWith(folder.home, 'true');
  return {
    home: folder.home,
    config: oneGroup(task),
    world: new FakeWorld(),
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}

test('a failed run that is resumed goes on in the same take and keeps its finished trials', async () => {
  const { db } = store;
  await using folder = await temporaryHome();
  const { folder: task } = await taskWith(folder.home, 'true');
  const config = runConfig.parse({
    model: 'm',
    tasks: [task],
    iterations: 1,
    groups_per_iteration: 2,
    group_size: 2,
    max_attempts: 1,
  });
  const world = new FakeWorld();
  const ran: string[] = [];
  let broken = true;
  world.runAgent = async ({ trialId, attempt }) => {
    ran.push(`${trialId} ${attempt}`);
    return broken && trialId.endsWith('1-1')
      ? { outcome: 'infra_error', reason: 'the disk is full', seconds: {} }
      : { outcome: null, seconds: {} };
  };
  world.trainStep = async () => {
    if (broken) throw ApplicationFailure.nonRetryable('the disk is full');
  };
  const real = recordsOver(world, { db, temporal: environment.client, home: folder.home });
  // An error that a person must repair blocks a run. The run fails if not even that status can be written.
  const setRunStatus: typeof real.setRunStatus = async (input) => {
    if (broken && input.status === 'blocked') throw ApplicationFailure.nonRetryable('the disk is full');
    return real.setRunStatus(input);
  };
  const statusOf = async () => (await db.select().from(runs).where(eq(runs.id, 'failed')))[0]?.status;

  const { openTrial } = real;
  await withWorkers(
    environment,
    { trialgate: { ...real, setRunStatus }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const first = await startRun(environment.client, 'failed', config);
      await expect(first.result()).rejects.toThrow();
      expect(await statusOf()).toBe('failed');
      expect(ran.toSorted()).toEqual(['failed-0.1-0-0 1', 'failed-0.1-0-1 1', 'failed-0.1-1-0 1', 'failed-0.1-1-1 1']);

      broken = false;
      await resumeRun({ client: environment.client, db }, 'failed');
      await environment.client.workflow.getHandle('failed').result();
    },
  );
  expect(ran.slice(4)).toEqual(['failed-0.1-1-1 2']);
  const takes = await db.select().from(iterations).where(eq(iterations.runId, 'failed'));
  expect(takes.map((row) => [row.iteration, row.take, row.status])).toEqual([[0, 1, 'done']]);
  expect(await statusOf()).toBe('completed');
});

test('a resumed run that Temporal’s CLI resets goes on in a new take', async () => {
  const { db } = store;
  await using place = await smallRun();
  const { config, world, home } = place;
  const { held, free } = hold(world, /^reset-0\.1-/);
  const real = recordsOver(world, { db, temporal: environment.client, home: home });
  await withWorkers(
    environment,
    { trialgate: real, sandboxes: { openTrial: real.openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      await startRun(environment.client, 'reset', config, { resume: true });
      await expect.poll(() => held.size).toBe(2);
      const reset = [
        'workflow',
        'reset',
        '--workflow-id',
        'reset',
        '--type',
        'FirstWorkflowTask',
        '--reapply-exclude',
        'All',
        '--reason',
        'redo',
      ];
      await promisify(execFile)(INSTALLS.temporal, [...reset, '--address', environment.address]);
      await environment.client.workflow.getHandle('reset').result().finally(free);
    },
  );
  const takes = await db.select().from(iterations).where(eq(iterations.runId, 'reset')).orderBy(iterations.take);
  expect(takes.map((row) => [row.take, row.status])).toEqual([
    [1, 'superseded'],
    [2, 'done'],
  ]);
});

test('a resume that comes while a cancelled run still ends waits for its end and starts it again', async () => {
  const { db } = store;
  await using place = await smallRun();
  const { config, world, home } = place;
  const { held, free } = hold(world, /^ending-0\.1-/);
  const real = recordsOver(world, { db, temporal: environment.client, home: home });
  const ending = Promise.withResolvers<void>();
  const releasePool = async () => {
    world.log.push('releasePool');
    await ending.promise;
  };
  await withWorkers(
    environment,
    {
      trialgate: { ...real, releasePool },
      sandboxes: { openTrial: real.openTrial },
      host: world.host(),
      gpu: world.gpu(),
    },
    async () => {
      const run = await startRun(environment.client, 'ending', config);
      await expect.poll(() => held.size).toBe(2);
      await run.cancel();
      await expect.poll(() => world.count('releasePool')).toBe(1);
      free();
      const resumed = resumeRun({ client: environment.client, db }, 'ending');
      await expect(environment.client.workflow.getHandle('ending').executeUpdate('resume')).rejects.toMatchObject({
        cause: { message: 'run ending is ending: resume it when it has ended' },
      });
      ending.resolve();
      expect(await resumed).toBe('run ending goes on');
      await environment.client.workflow.getHandle('ending').result();
    },
  );
  expect((await db.select().from(runs).where(eq(runs.id, 'ending')))[0]?.status).toBe('completed');
});

test('a run that a person cancels ends as cancelled, and a run that is not under way cannot be cancelled', async () => {
  const { db } = store;
  const { client } = environment;
  await using place = await smallRun();
  const { config, world, home } = place;
  const { held } = hold(world, /./);
  const { openTrial, ...general } = recordsOver(world, { db, temporal: client, home: home });
  await withWorkers(
    environment,
    { trialgate: { ...general, openTrial }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      await startRun(client, 'unwanted', config);
      await until(() => held.size === 2);
      expect(await cancelRun({ client }, 'unwanted')).toMatch(/^run unwanted is cancelled; .*resume unwanted$/);
      const [run] = await db.select().from(runs).where(eq(runs.id, 'unwanted'));
      expect(run?.status).toBe('cancelled');
      await expect(cancelRun({ client }, 'unwanted')).rejects.toThrow(/no run unwanted is under way/);
      await expect(cancelRun({ client }, 'nobody')).rejects.toThrow(/no run nobody is under way/);
    },
  );
});

test('a blocked run that is resumed does not count as blocked any more when `resume` has returned', async () => {
  const { db } = store;
  const { client } = environment;
  await using place = await smallRun();
  const { config, world, home } = place;
  let isBroken = true;
  world.trainStep = async () => {
    if (isBroken) throw ApplicationFailure.nonRetryable('the disk is full');
  };
  const { openTrial, ...general } = recordsOver(world, { db, temporal: client, home: home });
  // The store takes a while to say that the run goes on.
  const setRunStatus: typeof general.setRunStatus = async (input) => {
    if (input.status === 'running') await delay(1_000);
    return general.setRunStatus(input);
  };
  const statusOf = async () => (await db.select().from(runs).where(eq(runs.id, 'mended')))[0]?.status;
  await withWorkers(
    environment,
    {
      trialgate: { ...general, openTrial, setRunStatus },
      sandboxes: { openTrial },
      host: world.host(),
      gpu: world.gpu(),
    },
    async () => {
      const handle = await startRun(client, 'mended', config);
      await until(async () => (await statusOf()) === 'blocked');
      isBroken = false;
      await resumeRun({ client, db }, 'mended');
      expect(await statusOf()).not.toBe('blocked');
      await handle.result();
    },
  );
});
