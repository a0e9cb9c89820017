import { ApplicationFailure } from '@temporalio/common';
import { eq } from 'drizzle-orm';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { OTHER_MODEL_ADVICE } from '../../core/block-advice.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { countFailed } from '../../store/queries/reopen-failed.ts';
import { attempts, iterations, replicas, runs } from '../../store/schema.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import type { PublishInput } from '../../core/gpu-contract.ts';
import { confirmedReplicas } from '../support/fakes/confirmed-replicas.ts';
import { FakeEngine } from '../support/fakes/fake-engine.ts';
import { FullDisk } from '../support/fakes/fake-faults.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { hold } from '../histories/stage.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { poolOver, recordsOver } from '../support/harness/records-over.ts';
import { cancelRun } from '../../cli/run/cancel-run.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { until } from '../support/harness/until.ts';
import { startRun } from '../../cli/run/start-run.ts';
import { watchAndPrint } from '../../cli/run/train-file.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';

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

/** Starts a run again with Temporal's own CLI, as docs/operating.md says. */
async function startByTemporal(runId: string): Promise<void> {
  const page = await readFile(join(REPOSITORY, 'docs/operating.md'), 'utf8');
  const [, line = ''] = /^\$ temporal (workflow start .*"resume".*)$/m.exec(page) ?? [];
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? '');
  const { namespace } = environment.client.options;
  const at = ['--address', environment.address, '--namespace', namespace];
  await promisify(execFile)(INSTALLS.temporal, [...words.map((word) => (word === 'RUN' ? runId : word)), ...at]);
}

test.each([
  {
    runId: 'resumed',
    how: 'is resumed',
    again: (runId: string) => resumeRun({ client: environment.client, db: store.db }, runId),
  },
  {
    runId: 'forgotten',
    how: 'is resumed without its history',
    again: async (runId: string) => {
      const { client } = environment;
      const { namespace } = client.options;
      await client.workflowService.deleteWorkflowExecution({ namespace, workflowExecution: { workflowId: runId } });
      const handle = client.workflow.getHandle(runId);
      await until(async () => (await handle.describe().catch(() => null)) === null);
      await resumeRun({ client, db: store.db }, runId);
    },
  },
  { runId: 'started', how: 'Temporal’s own CLI starts again', again: startByTemporal },
])('a failed run that $how goes on in the same take and keeps its finished trials', async ({ runId, again }) => {
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
  const statusOf = async () => (await db.select().from(runs).where(eq(runs.id, runId)))[0]?.status;

  const { openTrial } = real;
  await withWorkers(
    environment,
    { trialgate: { ...real, setRunStatus }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const first = await startRun(environment.client, runId, config);
      await expect(first.result()).rejects.toThrow();
      expect(await statusOf()).toBe('failed');
      expect(ran.toSorted()).toEqual(['0-0', '0-1', '1-0', '1-1'].map((trial) => `${runId}-0.1-${trial} 1`));

      broken = false;
      await again(runId);
      await environment.client.workflow.getHandle(runId).result();
    },
  );
  expect(ran.slice(4)).toEqual([`${runId}-0.1-1-1 2`]);
  const takes = await db.select().from(iterations).where(eq(iterations.runId, runId));
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
      const { namespace } = environment.client.options;
      const at = ['--address', environment.address, '--namespace', namespace];
      await promisify(execFile)(INSTALLS.temporal, [...reset, ...at]);
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
      expect(await resumed).toEqual({ answer: 'run ending goes on', goesOn: true });
      await environment.client.workflow.getHandle('ending').result();
    },
  );
  expect((await db.select().from(runs).where(eq(runs.id, 'ending')))[0]?.status).toBe('completed');
});

test('a run that a person cancels ends as cancelled, says how it and its failed trials go on, and a run that is not under way cannot be cancelled', async () => {
  const { db } = store;
  const { client } = environment;
  await using place = await smallRun();
  const { config, world, home } = place;
  const { held } = hold(world, /./);
  const { runAgent } = world;
  world.runAgent = async (input) =>
    input.trialId.endsWith('0-0') ? { outcome: 'agent_error', reason: 'KeyError', seconds: {} } : runAgent(input);
  const { openTrial, ...general } = recordsOver(world, { db, temporal: client, home: home });
  await withWorkers(
    environment,
    { trialgate: { ...general, openTrial }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      await startRun(client, 'unwanted', config);
      await until(async () => held.size === 1 && (await countFailed(db, 'unwanted')) === 1);
      expect(await cancelRun({ client, db }, 'unwanted')).toBe(
        'run unwanted is cancelled; to continue it: npx trialgate resume unwanted (with --retry-failed its failed trials run again: 1)',
      );
      const [run] = await db.select().from(runs).where(eq(runs.id, 'unwanted'));
      expect(run?.status).toBe('cancelled');
      expect(run?.reason).toBe('cancelled by a person');
      await expect(cancelRun({ client, db }, 'unwanted')).rejects.toThrow(/no run unwanted is under way/);
      await expect(cancelRun({ client, db }, 'nobody')).rejects.toThrow(/no run nobody is under way/);
    },
  );
});

/** The reason of a run whose model is damaged says that only another model helps. */
const DAMAGED = `the model is damaged. ${OTHER_MODEL_ADVICE}`;

test('a cancelled run has in its record who cancelled it or why, and keeps the reason for which it was blocked', async () => {
  const { db } = store;
  const { client } = environment;
  await using place = await smallRun();
  const { config, world, home } = place;
  world.trainStep = async () => {
    throw ApplicationFailure.nonRetryable('the model is damaged', 'BadModel');
  };
  const { openTrial, ...general } = recordsOver(world, { db, temporal: client, home: home });
  const recordOf = async (id: string) => (await db.select().from(runs).where(eq(runs.id, id)))[0];
  await withWorkers(
    environment,
    { trialgate: { ...general, openTrial }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const quickstart = (id: string, signal: AbortSignal) =>
        expect(watchAndPrint({ client, db }, id, { cancelOnFailure: true }, signal)).rejects.toThrow();
      const endings = {
        'by-quickstart': () => quickstart('by-quickstart', new AbortController().signal),
        interrupted: () => quickstart('interrupted', AbortSignal.abort()),
        'by-temporal': async () => {
          const handle = client.workflow.getHandle('by-temporal');
          await handle.cancel();
          await handle.result().catch(() => {});
        },
      };
      for (const [id, cancel] of Object.entries(endings)) {
        const handle = await startRun(client, id, config);
        await until(async () => (await recordOf(id))?.status === 'blocked');
        expect(await handle.query<RunStatusReport>('status')).toMatchObject({
          reason: DAMAGED,
          reason_type: 'BadModel',
        });
        await cancel();
      }
    },
  );
  expect(await recordOf('by-quickstart')).toMatchObject({
    status: 'cancelled',
    reason: `${DAMAGED} (then cancelled because its quickstart ended)`,
  });
  expect((await recordOf('interrupted'))?.reason).toBe(
    `${DAMAGED} (then cancelled because its quickstart was interrupted)`,
  );
  expect(await recordOf('by-temporal')).toMatchObject({
    status: 'cancelled',
    reason: `${DAMAGED} (then cancelled through Temporal)`,
  });
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

test('a blocked run lets a waiting run have its engines; resumed, it waits its turn and goes on in its take with its own version', async () => {
  const { db } = store;
  const { client } = environment;
  await using folder = await temporaryHome();
  const { home } = folder;
  const { folder: task } = await taskWith(home, 'true');
  const engine = await new FakeEngine().start();
  const config = { ...oneGroup(task), engines: [engine.url] };
  const world = new FakeWorld();
  const { held, free } = hold(world, /^patient-/);
  const { runAgent } = world;
  const sampled = new Set<string>();
  world.runAgent = async (input) => {
    sampled.add(`${input.trialId.split('-')[0]} from ${engine.weightVersion}`);
    return runAgent(input);
  };
  const disk = new FullDisk();
  const trainStep = async (input: { version: number }) => {
    if (engine.weightVersion === 'stuck@0') await disk.work();
    return world.gpu().trainStep(input);
  };
  const published: string[] = [];
  const publishPolicy = async (input: PublishInput) => {
    engine.weightVersion = input.weight_version;
    published.push(input.weight_version);
    return { replicas: confirmedReplicas(input) };
  };
  const place = { db, temporal: client, home };
  const general = { ...recordsOver(world, place), ...poolOver(place) };
  const isSaid = async (runId: string, reason: string) =>
    (await db.select().from(runs).where(eq(runs.id, runId)))[0]?.reason?.includes(reason);
  await withWorkers(
    environment,
    {
      trialgate: general,
      sandboxes: { openTrial: general.openTrial },
      host: world.host(),
      gpu: { ...world.gpu(), publishPolicy, trainStep },
    },
    async () => {
      const stuck = await startRun(client, 'stuck', config);
      await until(() => isSaid('stuck', 'the disk is full'));
      const patient = await startRun(client, 'patient', config);
      await until(() => isSaid('patient', 'run stuck has it'));
      await stuck.executeUpdate('configure', { args: [{ release_engines_after: 0 }] });
      await until(() => held.size === 2);
      disk.isFull = false;
      await resumeRun({ client, db }, 'stuck');
      await until(() => isSaid('stuck', 'run patient has it'));
      free();
      await Promise.all([patient.result(), stuck.result()]);
    },
  );
  expect(published).toEqual(['stuck@0', 'patient@0', 'patient@1', 'stuck@0', 'stuck@1']);
  expect([...sampled]).toEqual(['stuck from stuck@0', 'patient from patient@0']);
  const takes = await db.select().from(iterations).where(eq(iterations.runId, 'stuck'));
  expect(takes.map(({ iteration, take, status }) => [iteration, take, status])).toEqual([[0, 1, 'done']]);
  await engine.stop();
});

test('a try to release the engines of a blocked run that goes on after Temporal gave it up takes none from the run, which was resumed', async () => {
  const { db } = store;
  const { client } = environment;
  await using place = await smallRun();
  const { world, home } = place;
  const engine = await new FakeEngine().start();
  const disk = new FullDisk();
  const [late, trained] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isTraining = false;
  const trainStep = async (input: { version: number }) => {
    await disk.work();
    isTraining = true;
    await trained.promise;
    return world.gpu().trainStep(input);
  };
  const publishPolicy = async (input: PublishInput) => {
    engine.weightVersion = input.weight_version;
    return { replicas: confirmedReplicas(input) };
  };
  const real = { ...recordsOver(world, { db, temporal: client, home }), ...poolOver({ db, temporal: client, home }) };
  let givenUp: Promise<boolean> | undefined;
  const releaseUnusedPool = async (input: { runId: string }) => {
    if (givenUp) return real.releaseUnusedPool(input);
    givenUp = late.promise.then(() => real.releaseUnusedPool(input));
    throw ApplicationFailure.retryable('the time for this try is over');
  };
  const owners = async () =>
    (await db.select().from(replicas).where(eq(replicas.url, engine.url))).map((row) => row.runId);
  await withWorkers(
    environment,
    {
      trialgate: { ...real, releaseUnusedPool },
      sandboxes: { openTrial: real.openTrial },
      host: world.host(),
      gpu: { ...world.gpu(), publishPolicy, trainStep },
    },
    async () => {
      const config = { ...place.config, engines: [engine.url], release_engines_after: 0 };
      const run = await startRun(client, 'late', config);
      await until(async () => givenUp !== undefined && (await owners()).length === 0);
      disk.isFull = false;
      await resumeRun({ client, db }, 'late');
      await until(() => isTraining);
      late.resolve();
      await Promise.allSettled([givenUp]);
      const left = await owners();
      trained.resolve();
      await run.result();
      expect(left).toEqual(['late']);
      await expect(givenUp).rejects.toThrow('Temporal does not wait for this try');
    },
  );
  await engine.stop();
});

test('the stragglers of a blocked run are cut before its engines are released, and run again after a resume', async () => {
  const { db } = store;
  const { client } = environment;
  await using folder = await temporaryHome();
  const { home } = folder;
  const { folder: task } = await taskWith(home, 'true');
  const config = runConfig.parse({
    ...oneGroup(task),
    group_size: 3,
    group_quorum: 2,
    stragglers: 'carry_over',
    max_staleness: 1,
    release_engines_after: 0,
  });
  const world = new FakeWorld();
  const { free } = hold(world, /^straggling-0\.1-0-2$/);
  const disk = new FullDisk();
  world.trainStep = disk.work;
  const { openTrial, ...general } = recordsOver(world, { db, temporal: client, home });
  const attemptsOfStraggler = async () =>
    (await db.select().from(attempts).where(eq(attempts.trialId, 'straggling-0.1-0-2')).orderBy(attempts.attempt)).map(
      ({ outcome }) => outcome,
    );
  const atRelease: unknown[] = [];
  const releaseUnusedPool: typeof general.releaseUnusedPool = async () => {
    atRelease.push(await attemptsOfStraggler());
    return general.releaseUnusedPool();
  };
  await withWorkers(
    environment,
    {
      trialgate: { ...general, openTrial, releaseUnusedPool },
      sandboxes: { openTrial },
      host: world.host(),
      gpu: world.gpu(),
    },
    async () => {
      const run = await startRun(client, 'straggling', config);
      await until(() => atRelease.length > 0);
      free();
      disk.isFull = false;
      await resumeRun({ client, db }, 'straggling');
      await run.result();
    },
  );
  expect(atRelease).toEqual([['cancelled']]);
  expect(await attemptsOfStraggler()).toEqual(['cancelled', 'scored']);
});
