import { Context, sleep } from '@temporalio/activity';
import { WorkflowFailedError } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { eq } from 'drizzle-orm';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test as once } from 'vitest';
import { forkRun } from '../../cli/run/fork-run.ts';
import { redoRun } from '../../cli/run/redo-run.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { iterations, runs } from '../../store/schema.ts';
import { runWithVersion } from '../support/scenarios/run-with-version.ts';
import { until } from '../support/harness/until.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { closingDuringPoll, reopening, TirelessAgents } from '../support/fakes/fake-faults.ts';
import type { RunProgress } from '../../workflows/run-execution.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

/**
 * Tests of workflows that are started again under their id while the one before is still closing: a resume, a redo, a fork, a publication,
 * an evaluation. TRIALGATE_TEST_REPEATS=99 runs each test a hundred times in a row.
 */
const REPEATS = Number(process.env['TRIALGATE_TEST_REPEATS'] ?? 0);
const test = (title: string, body: () => Promise<void>) =>
  once(title, { repeats: REPEATS, timeout: (REPEATS + 1) * 180_000 }, body);

const environment = useTemporal();
const store = useDatabase();
const connected = () => ({ client: environment.client, db: store.db });
let serial = 0;
const newId = () => `again${++serial}`;

type General = ReturnType<FakeWorld['general']>;
type Overrides = Partial<{ [name in keyof General]: (input: never) => Promise<unknown> }>;
const during = <T>(world: FakeWorld, own: Overrides, body: () => Promise<T>) =>
  withWorkers(
    environment,
    { trialgate: { ...world.general(), ...own }, sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    body,
  );
const start = (id: string, progress: RunProgress = {}) =>
  environment.client.workflow.start('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}, progress] });
const closed = (id: string) =>
  environment.client.workflow
    .getHandle(id)
    .result()
    .catch((error: unknown) => {
      if (!(error instanceof WorkflowFailedError)) throw error;
    });

/** Makes the agents of trials that `isSlow` names run until they are stopped. */
function workWhile(world: FakeWorld, isSlow: (trialId: string) => boolean): TirelessAgents {
  const agents = new TirelessAgents();
  world.runAgent = async ({ trialId }) => (isSlow(trialId) ? agents.run() : { outcome: null, seconds: {} });
  // A cut trial has no outcome and is tried again.
  const { outcomes, log } = world;
  world.sealTrial = async ({ trialId, attempt, outcome }) => {
    log.push(`seal ${trialId} ${attempt} ${outcome}`);
    if (outcome === 'scored') outcomes.set(trialId, outcome);
  };
  return agents;
}

/** Makes a group's end appear in the store at once and its workflow close later: when `isOver` is true, or after a while. */
function slowlyClosing(world: FakeWorld, isOver: () => boolean): Overrides {
  const { endGroup } = world.general();
  return {
    endGroup: async (input: { id: string }) => {
      await endGroup(input);
      for (let tick = 0; tick < 30 && !isOver(); tick++) await sleep(50);
      // Whoever starts the group again has its answer by then.
      await sleep(300);
    },
  };
}

/** Like `slowlyClosing`, until the run is resumed and opens its groups again. */
function closingUntilResumed(world: FakeWorld): { own: Overrides; isResumed: () => boolean } {
  const { planGroups } = world.general();
  let isResumed = false;
  const own: Overrides = {
    ...slowlyClosing(world, () => isResumed),
    planGroups: async (input: Parameters<General['planGroups']>[0]) => {
      isResumed ||= input.reopen;
      return reopening(world, planGroups)(input);
    },
  };
  return { own, isResumed: () => isResumed };
}

test('a run that is resumed while its cancelled groups close runs these groups again', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 2,
    evaluation: { tasks: ['held-out'], samples: 1, before: false, every: 1, after: false },
  });
  const general = world.general();
  const closing = closingUntilResumed(world);
  let failures = 0;
  const agents = workWhile(world, (trialId) => failures === 0 && trialId.includes('-1.1-'));
  const own: Overrides = {
    ...closing.own,
    planEvaluation: async (input: { runId: string; policyVersion: number }) => {
      if (failures > 0) return general.planEvaluation(input);
      await until(() => agents.started >= 4);
      failures++;
      throw ApplicationFailure.nonRetryable('the disk is full');
    },
  };
  await during(world, own, async () => {
    const run = await start(newId());
    await until(() => world.count('blocked') === 1);
    await environment.client.workflow.getHandle(run.workflowId).executeUpdate('resume');
    await run.result();
  });
  expect(world.log.filter((entry) => entry.startsWith('close'))).toEqual(['close 0.1', 'close 1.1']);
  expect(world.outcomes.size).toBe(12);
});

test('a run that is started again while the groups of its cancelled execution close runs these groups again', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const id = newId();
  const closing = closingUntilResumed(world);
  const agents = workWhile(world, () => !closing.isResumed() && agents.started < 4);
  const own: Overrides = { ...closing.own, openTake: async () => ({ take: 1, superseded: [] }) };
  await during(world, own, async () => {
    const first = await start(id);
    await until(() => agents.started === 4);
    await first.cancel();
    await closed(id);
    await (await start(id, { resume: true })).result();
  });
  expect([...world.outcomes.values()]).toEqual(['scored', 'scored', 'scored', 'scored']);
});

test('a run that was terminated and is started again waits for its groups that still run, and does not start them twice', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const id = newId();
  const free = Promise.withResolvers<void>();
  let started = 0;
  world.runAgent = async () => {
    started++;
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await free.promise.finally(() => clearInterval(beat));
    return { outcome: null, seconds: {} };
  };
  // The signal of a group's end is lost while its run does not exist.
  await during(world, { openTake: async () => ({ take: 1, superseded: [] }) }, async () => {
    const first = await start(id);
    await until(() => started === 4);
    await first.terminate();
    const [again] = await Promise.all([start(id, { resume: true }), sleepThen(free.resolve)]);
    await again.result();
  });
  expect(started).toBe(4);
  expect(world.count('close 0.1')).toBe(1);
});

test('a redo during an evaluation waits until that evaluation has closed, and then the run evaluates again', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 1,
    evaluation: { tasks: ['held-out'], samples: 1, before: true, every: null, after: false },
  });
  const id = newId();
  let isReset = false;
  const agents = workWhile(world, (trialId) => !isReset && trialId.includes('eval'));
  await store.db.insert(runs).values({ id, config: world.config });
  await store.db.insert(iterations).values({ runId: id, iteration: 0, take: 1, status: 'open', policyVersion: 0 });
  await during(
    world,
    slowlyClosing(world, () => false),
    async () => {
      await start(id);
      await until(() => agents.started === 4);
      isReset = true;
      await redoRun(connected(), id);
      for (const ordinal of [0, 1]) await environment.client.workflow.getHandle(`${id}/eval@0/${ordinal}`).cancel();
      await environment.client.workflow.getHandle(id).result();
    },
  );
  expect(world.count('blocked')).toBe(0);
  expect([...world.outcomes.keys()].filter((trialId) => trialId.includes('eval'))).toHaveLength(4);
  expect(world.count('completed')).toBe(1);
  expect(await store.db.select({ status: iterations.status }).from(iterations).where(eq(iterations.runId, id))).toEqual(
    [{ status: 'superseded' }],
  );
});

test('a fork that is resumed while its cancelled groups close runs these again; another fork of that name is refused meanwhile', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const [from, id] = [{ runId: newId(), version: 1 }, newId()];
  const home = await mkdtemp(path.join(tmpdir(), 'trialgate-fork-'));
  onTestFinished(() => rm(home, { recursive: true }));
  await runWithVersion(store.db, home, from.runId, from.version, {
    ...world.config,
    tasks: [path.resolve('tasks/train')],
  });
  const closing = closingUntilResumed(world);
  const agents = workWhile(world, () => !closing.isResumed() && agents.started < 4);
  const own: Overrides = { ...closing.own, openTake: async () => ({ take: 1, superseded: [] }) };
  await during(world, own, async () => {
    await forkRun(connected(), from, id, {});
    await until(() => agents.started === 4);
    const first = environment.client.workflow.getHandle(id);
    await first.cancel();
    await expect(forkRun(connected(), from, id, {})).rejects.toMatchObject({
      code: 'bad_input',
      message: `run ${id} exists: choose another --run`,
    });
    // A resume does not wait for the groups of the execution that ended.
    await resumeRun(connected(), id);
    await environment.client.workflow.getHandle(id).result();
  });
  expect([...world.outcomes.values()]).toEqual(['scored', 'scored', 'scored', 'scored']);
});

test('a run does not start a group again that closes while the run’s poll still lists it as open', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const id = newId();
  const { started, own } = closingDuringPoll(world, environment.client, id);
  await during(world, own, async () => void (await (await start(id)).result()));
  expect(started.toSorted()).toEqual([`${id}/0.1/0`, `${id}/0.1/1`]);
});

test('a run that was terminated during its train step repeats the step after the old step has closed', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const id = newId();
  let steps = 0;
  world.trainStep = async () => {
    if (steps++ > 0) return;
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await sleep('1h').finally(() => clearInterval(beat));
  };
  await during(world, { openTake: async () => ({ take: 1, superseded: [] }) }, async () => {
    const first = await start(id);
    await until(() => steps === 1);
    await first.terminate();
    await (await start(id, { resume: true })).result();
  });
  expect(world.count('blocked')).toBe(0);
  expect(world.count('train 1')).toBe(1);
});

test('a run’s publication waits until the publication of its terminated execution has ended', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const id = newId();
  const publishing = Promise.withResolvers<void>();
  const free = Promise.withResolvers<void>();
  world.publish = async () => {
    publishing.resolve();
    await free.promise;
    return {};
  };
  await during(world, { openTake: async () => ({ take: 1, superseded: [] }), poolHas: async () => false }, async () => {
    const first = await start(id);
    await publishing.promise;
    await first.terminate();
    const again = await start(id, { resume: true });
    await until(
      async () =>
        (await again.query<{ waits_for: string | null }>('status')).waits_for?.startsWith('its turn') === true,
    );
    free.resolve();
    await again.result();
  });
  expect(world.log.filter((entry) => entry.startsWith('publish'))).toEqual([
    'publish 0 1',
    'publish 0 1',
    'publish 1 1',
  ]);
});

test('a second evaluation on demand waits until the cancelled first one has closed', async () => {
  const world = new FakeWorld();
  const runId = newId();
  const agents = workWhile(world, () => agents.started < 2);
  let serialOfPlan = 0;
  const own = {
    ...slowlyClosing(world, () => false),
    borrowPool: async () => ({ version: 0, published: true }),
    planEvaluationOnDemand: async () => {
      const group = {
        runId,
        kind: 'eval' as const,
        iteration: null,
        take: null,
        ordinal: 0,
        size: 2,
        task: 't',
        agent: 'a',
        policyVersion: 0,
      };
      const n = ++serialOfPlan;
      return {
        id: `eval@0.${n}`,
        plans: [{ ...group, id: `${runId}/eval@0.${n}/0`, trialPrefix: `${runId}-eval.0.${n}-0` }],
        deadlineSeconds: 600,
      };
    },
    returnPool: async () => void world.log.push('return'),
  };
  const evaluate = () =>
    environment.client.workflow.start('evaluateRun', {
      workflowId: `${runId}/evaluate`,
      taskQueue: 'trialgate',
      args: [{ runId }],
      workflowIdConflictPolicy: 'TERMINATE_EXISTING',
    });
  await during(world, own, async () => {
    const first = await evaluate();
    await until(() => agents.started === 2);
    await first.cancel();
    const again = await evaluate();
    expect(await again.result()).toEqual({ runId, id: 'eval@0.2', version: 0 });
  });
  expect(world.log.filter((entry) => /^(return|end)/.test(entry))).toEqual([
    `end ${runId}/eval@0.1/0`,
    'return',
    `end ${runId}/eval@0.2/0`,
    'return',
  ]);
});

const sleepThen = async (work: () => void): Promise<void> => {
  await new Promise((resolve) => setTimeout(resolve, 500));
  work();
};
