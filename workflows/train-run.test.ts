import { ApplicationFailure } from '@temporalio/common';
import { Context, sleep } from '@temporalio/activity';
import { expect, test } from 'vitest';
import { until } from '../tests/support/harness/until.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { FullDisk, reopening, TirelessAgents } from '../tests/support/fakes/fake-faults.ts';
import type { RunStatusReport } from './messages.ts';
import { withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';

const environment = useTemporal();
let serial = 0;

const newId = () => `run${++serial}`;
const workers = <T>(world: FakeWorld, body: () => Promise<T>) =>
  withWorkers(
    environment,
    { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    body,
  );
const start = (id: string, ...args: unknown[]) =>
  environment.client.workflow.start('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}, ...args] });

test('each iteration samples from the version that the iteration before published, then trains, records and publishes its own', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.evaluation.tasks = ['held-out'];
  await workers(world, async () => (await start(newId())).result());
  const steps = world.log.filter((entry) => !/^(seal|end|acquire|release)/.test(entry));
  expect(steps).toEqual([
    'publish 0 1',
    'evaluate 0',
    'sample 0 from 0',
    'train 1',
    'record 1',
    'publish 1 1',
    'close 0.1',
    'sample 1 from 1',
    'train 2',
    'record 2',
    'publish 2 1',
    'close 1.1',
    'evaluate 2',
    'completed',
  ]);
});

test('a trial that ends as infra_error, or whose worker is lost, runs again as a new attempt and is scored', async () => {
  const world = new FakeWorld();
  const id = newId();
  world.config.iterations = 1;
  world.runAgent = async ({ trialId, attempt }) => {
    if (trialId.endsWith('-0') && attempt === 1)
      return { outcome: 'infra_error', reason: 'the engine is gone', seconds: {} };
    if (trialId.endsWith('-1') && attempt === 1) throw ApplicationFailure.nonRetryable('worker lost');
    return { outcome: null, seconds: {} };
  };
  await workers(world, async () => (await start(id)).result());
  expect(world.count(`seal ${id}-0.1-0-0 1 infra_error`)).toBe(1);
  expect(world.count(`seal ${id}-0.1-0-0 2 scored`)).toBe(1);
  expect(world.count(`seal ${id}-0.1-0-1 2 scored`)).toBe(1);
});

test('an engine that restarted during a rollout gets the run’s weights again', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  let lost = false;
  world.runAgent = async () => {
    if (!lost) {
      lost = true;
      world.poolWhole = false;
      return { outcome: 'infra_error', reason: 'connection reset', seconds: {} };
    }
    return { outcome: null, seconds: {} };
  };
  await workers(world, async () => (await start(newId())).result());
  expect(world.count('publish 0 1')).toBe(2);
});

test('a repair of the pool is tried again until as many replicas confirm the version as the run needs', async () => {
  const world = new FakeWorld();
  world.poolWhole = false;
  world.publish = () => ({ ok: world.log.length > 0 });
  const repaired = await workers(world, async () =>
    environment.client.workflow.execute('restorePool', { workflowId: newId(), taskQueue: 'trialgate', args: ['run'] }),
  );
  expect(repaired).toBe(true);
  expect(world.log).toEqual(['publish 0 0', 'publish 0 1']);
});

test('a trial past its group’s deadline is cut, and the iteration goes on', async () => {
  const world = new FakeWorld();
  const id = newId();
  world.config.iterations = 1;
  world.config.deadlines.group = 2;
  world.runAgent = async ({ trialId }) => {
    if (trialId.endsWith('-1')) {
      const beat = setInterval(() => Context.current().heartbeat(), 200);
      await sleep('1h').finally(() => clearInterval(beat));
    }
    return { outcome: null, seconds: {} };
  };
  await workers(world, async () => (await start(id)).result());
  expect(world.outcomes.get(`${id}-0.1-0-1`)).toBe('truncated');
  expect(world.outcomes.get(`${id}-0.1-0-0`)).toBe('scored');
});

test('a run whose train step fails is blocked, and a resume repeats the train step in the same take', async () => {
  const world = new FakeWorld();
  const id = newId();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const disk = new FullDisk();
  world.trainStep = disk.work;
  await workers(world, async () => {
    const handle = await start(id);
    await until(() => world.count('blocked') === 1);
    expect(world.blockedReason).toBe('the disk is full');
    const status = await handle.query<{ phase: string; reason: string }>('status');
    expect(status).toMatchObject({ phase: 'blocked', reason: 'the disk is full' });
    disk.isFull = false;
    await handle.executeUpdate('resume');
    await handle.result();
  });
  const sealed = world.log.filter((entry) => entry.startsWith('seal'));
  expect(new Set(sealed).size).toBe(sealed.length);
  expect(world.count('train 1')).toBe(1);
  expect(world.takes.get(0)).toBe(1);
});

test('a blocked run releases its engines at the time that its settings say, and publishes its version again after a resume', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const disk = new FullDisk();
  world.trainStep = disk.work;
  await workers(world, async () => {
    const run = await start(newId());
    const waitsFor = async () => (await run.query<RunStatusReport>('status')).waits_for ?? '';
    await until(async () => (await waitsFor()).includes('its engines will be released at'));
    await run.executeUpdate('configure', { args: [{ release_engines_after: 0 }] });
    await until(async () => (await waitsFor()).endsWith('its engines were released'));
    disk.isFull = false;
    await run.executeUpdate('resume');
    await run.result();
  });
  expect(world.log.filter((entry) => !/^(seal|end|completed|releasePool)/.test(entry))).toEqual([
    'acquirePool',
    'publish 0 1',
    'sample 0 from 0',
    'blocked',
    'releaseUnusedPool',
    'running',
    'acquirePool',
    'publish 0 1',
    'train 1',
    'record 1',
    'publish 1 1',
    'close 0.1',
  ]);
});

test('a blocked run that has published nothing releases its engines at once', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const disk = new FullDisk();
  const loadBase = async () => {
    await disk.work();
    return {};
  };
  const activities = {
    trialgate: world.general(),
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: { ...world.gpu(), loadBase },
  };
  await withWorkers(environment, activities, async () => {
    const run = await start(newId());
    await until(() => world.count('releaseUnusedPool') === 1);
    disk.isFull = false;
    await run.executeUpdate('resume');
    await run.result();
  });
  expect(world.log.filter((entry) => /^(acquire|releaseUnused|publish)/.test(entry))).toEqual([
    'acquirePool',
    'releaseUnusedPool',
    'acquirePool',
    'publish 0 1',
    'publish 1 1',
  ]);
});

test('a run that is blocked before it has read its settings again releases its engines, and publishes the version of its iteration after a resume', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { groups_per_iteration: 1, iterations: 2, release_engines_after: 0 });
  const disk = new FullDisk();
  const general = world.general();
  const prepareRun: typeof general.prepareRun = async () => {
    if (world.count('close 0.1') === 1) await disk.work();
    return general.prepareRun();
  };
  const activities = {
    trialgate: { ...general, prepareRun },
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => {
    const run = await start(newId());
    await until(() => world.count('releaseUnusedPool') === 1);
    disk.isFull = false;
    await environment.client.workflow.getHandle(run.workflowId).executeUpdate('resume');
    await run.result();
  });
  expect(world.log.filter((entry) => /^(acquire|releaseUnused|publish|close)/.test(entry))).toEqual([
    'acquirePool',
    'publish 0 1',
    'publish 1 1',
    'close 0.1',
    'releaseUnusedPool',
    'acquirePool',
    'publish 1 1',
    'publish 2 1',
    'close 1.1',
  ]);
});

test('a blocked run that is resumed before its engines could be released keeps them', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { groups_per_iteration: 1, iterations: 1, release_engines_after: 0 });
  const disk = new FullDisk();
  world.trainStep = disk.work;
  let tries = 0;
  const releaseUnusedPool = async () => {
    tries++;
    throw ApplicationFailure.retryable('an evaluation on demand uses them');
  };
  const activities = {
    trialgate: { ...world.general(), releaseUnusedPool },
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => {
    const run = await start(newId());
    await until(() => tries > 0);
    disk.isFull = false;
    await run.executeUpdate('resume');
    await run.result();
  });
  expect(world.log.filter((entry) => /^(acquire|publish)/.test(entry))).toEqual([
    'acquirePool',
    'publish 0 1',
    'publish 1 1',
  ]);
});

test('a resume that arrives while a run’s status `blocked` is still being written makes the run go on', async () => {
  const world = new FakeWorld();
  const id = newId();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const disk = new FullDisk();
  world.trainStep = disk.work;
  const general = world.general();
  const setRunStatus: typeof general.setRunStatus = async (input) => {
    if (input.status === 'blocked') {
      disk.isFull = false;
      await environment.client.workflow.getHandle(id).startUpdate('resume', { waitForStage: 'ACCEPTED' });
    }
    return general.setRunStatus(input);
  };
  const activities = {
    trialgate: { ...general, setRunStatus },
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => (await start(id)).result());
  expect(world.count('blocked')).toBe(1);
});

test('when too few replicas confirm a new version, the run publishes the version before to the pool again and is blocked', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  let refusing = true;
  world.publish = ({ weight_version: to }) =>
    refusing && to.endsWith('@1') ? { ok: false, error: 'its canary disagrees' } : {};
  await workers(world, async () => {
    const handle = await start(newId());
    await until(() => world.count('blocked') === 1);
    expect(world.blockedReason).toContain('its canary disagrees');
    expect(world.log.filter((entry) => entry.startsWith('publish'))).toEqual([
      'publish 0 1',
      'publish 1 0',
      'publish 1 0',
      'publish 1 0',
      'publish 0 1',
    ]);
    refusing = false;
    await handle.executeUpdate('resume');
    await handle.result();
  });
});

test('a publication under way completes although its run’s workflow was terminated', async () => {
  const world = new FakeWorld();
  const publishing = Promise.withResolvers<void>();
  const terminated = Promise.withResolvers<void>();
  world.publish = async () => {
    publishing.resolve();
    await terminated.promise;
    return {};
  };
  await workers(world, async () => {
    const id = newId();
    const handle = await start(id);
    await publishing.promise;
    await handle.terminate();
    terminated.resolve();
    await environment.client.workflow.getHandle(`${id}/publish`).result();
  });
  expect(world.count('publish 0 1')).toBe(1);
});

test('a cancelled run stops its agents and releases its pool', async () => {
  const world = new FakeWorld();
  const id = newId();
  const agents = new TirelessAgents();
  world.runAgent = agents.run;
  await workers(world, async () => {
    const handle = await start(id);
    await until(() => agents.started >= 4);
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow();
    expect(agents.stopped).toBe(4);
  });
  expect(world.count('cancelled')).toBe(1);
  expect(world.count('releasePool')).toBe(1);
  expect([...world.outcomes.values()]).toEqual(['cancelled', 'cancelled', 'cancelled', 'cancelled']);
});

test('a run that is told to stop ends after its current iteration', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 5;
  let handle: Awaited<ReturnType<typeof start>> | undefined;
  world.trainStep = async () => void (await handle?.executeUpdate('stop'));
  await workers(world, async () => {
    handle = await start(newId());
    await handle.result();
  });
  expect(world.log.filter((entry) => entry.startsWith('close'))).toEqual(['close 0.1']);
});

test('a run finds by itself that an engine came back during a rollout, and publishes its version to it again', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const back = Promise.withResolvers<void>();
  world.runAgent = async () => {
    world.poolWhole = false;
    await back.promise;
    return { outcome: null, seconds: {} };
  };
  await workers(world, async () => {
    const run = await start(newId());
    // No trial reports a lost engine: the run's first poll finds it.
    await until(() => world.count('publish 0 1') === 2).finally(back.resolve);
    await run.result();
  });
  expect(world.outcomes.size).toBe(4);
});

test('a blocked or paused run does not poll its engines', async () => {
  const world = new FakeWorld();
  world.trainStep = new FullDisk().work;
  /** Returns the number of timers under way. A pause has one, and so has a block, after which the engines are released. */
  const timers = async (run: Awaited<ReturnType<typeof start>>) => {
    const { events } = await run.fetchHistory();
    const begun = events?.filter((event) => event.timerStartedEventAttributes).length ?? 0;
    return (
      begun -
      (events?.filter((event) => event.timerFiredEventAttributes ?? event.timerCanceledEventAttributes).length ?? 0)
    );
  };
  await workers(world, async () => {
    const blocked = await start(newId());
    await until(async () =>
      (await blocked.query<RunStatusReport>('status')).waits_for?.includes('its engines will be released at'),
    );
    expect(await timers(blocked)).toBe(1);
    const paused = await start(newId(), { pausedUntil: Date.now() + 3_600_000 });
    await until(async () => (await paused.query<RunStatusReport>('status')).phase === 'paused');
    expect(await timers(paused)).toBe(1);
    for (const run of [blocked, paused]) await run.terminate();
  });
});

test('a repair of the pool that is under way completes although its run is cancelled', async () => {
  const world = new FakeWorld();
  const agents = new TirelessAgents();
  world.runAgent = agents.run;
  const repairing = Promise.withResolvers<void>();
  const cancelled = Promise.withResolvers<void>();
  await workers(world, async () => {
    const run = await start(newId());
    await until(() => agents.started >= 4);
    world.poolWhole = false;
    world.publish = async () => {
      repairing.resolve();
      await cancelled.promise;
      return {};
    };
    await run.signal('engineTrouble');
    await repairing.promise;
    await run.cancel();
    const repair = environment.client.workflow.getHandle(`${run.workflowId}/publish`);
    await until(
      async () =>
        (await repair.fetchHistory()).events?.some((event) => event.workflowExecutionCancelRequestedEventAttributes) ===
        true,
    ).finally(cancelled.resolve);
    await expect(run.result()).rejects.toThrow();
  });
  expect(world.log.filter((entry) => /^(publish|releasePool)/.test(entry))).toEqual([
    'publish 0 1',
    'publish 0 1',
    'releasePool',
  ]);
});

test('engines that were lost during a publication are repaired with the version of that publication', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 2;
  const publishing = Promise.withResolvers<void>();
  const runId = newId();
  let lost = false;
  world.publish = async ({ weight_version: to }) => {
    if (to.endsWith('@1') && !lost) {
      lost = true;
      await environment.client.workflow.getHandle(runId).signal('engineTrouble');
      await publishing.promise;
    }
    return {};
  };
  const missing: number[] = [];
  const missingVersion = async () => {
    missing.push(world.published);
    return null;
  };
  await withWorkers(
    environment,
    {
      trialgate: { ...world.general(), missingVersion },
      sandboxes: world.sandboxes(),
      host: world.host(),
      gpu: world.gpu(),
    },
    async () => {
      const run = await start(runId);
      await until(() => lost);
      publishing.resolve();
      await run.result();
    },
  );
  expect(missing).toEqual([1]);
});

test('a failure between two iterations blocks the run, and a resume makes it go on', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const general = world.general();
  let failures = 0;
  const failsOnce =
    <I, O>(work: (input: I) => Promise<O>) =>
    async (input: I): Promise<O> => {
      if (failures++ === 0) throw ApplicationFailure.nonRetryable('the disk is full');
      return work(input);
    };
  const activities = {
    trialgate: { ...general, openTake: failsOnce(general.openTake) },
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => {
    const run = await start(newId());
    await until(() => world.count('blocked') === 1);
    await run.executeUpdate('resume');
    await run.result();
  });
  expect(world.count('close 0.1')).toBe(1);
});

test('a run that cannot release its engines still records how it ended', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  const releasePool = async () => {
    throw ApplicationFailure.nonRetryable('the database is away');
  };
  const activities = {
    trialgate: { ...world.general(), releasePool },
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => (await start(newId())).result());
  expect(world.count('completed')).toBe(1);
});

test('when a publication fails without a report of its replicas, the run publishes the version before again and is blocked', async () => {
  const world = new FakeWorld();
  world.config.groups_per_iteration = 1;
  world.config.iterations = 1;
  let broken = true;
  world.publish = ({ weight_version: to }) => {
    if (broken && to.endsWith('@1')) throw ApplicationFailure.nonRetryable('EngineWithoutDevRoutes');
    return {};
  };
  await workers(world, async () => {
    const run = await start(newId());
    await until(() => world.count('blocked') === 1);
    expect(world.log.filter((entry) => entry.startsWith('publish'))).toEqual(['publish 0 1', 'publish 0 1']);
    broken = false;
    await run.executeUpdate('resume');
    await run.result();
  });
});

test('a run with `evaluation.every: 2` evaluates every second version before it publishes the next one', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 5,
    groups_per_iteration: 1,
    evaluation: { tasks: ['held-out'], samples: 1, before: false, every: 2, after: false },
  });
  await workers(world, async () => (await start(newId())).result());
  expect(world.log.filter((entry) => /^(publish|evaluate)/.test(entry))).toEqual([
    'publish 0 1',
    'publish 1 1',
    'publish 2 1',
    'evaluate 2',
    'publish 3 1',
    'publish 4 1',
    'evaluate 4',
    'publish 5 1',
  ]);
});

test('when the evaluation beside a rollout fails, the run cuts the rollout and is blocked; a resume continues the same take', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 2,
    evaluation: { tasks: ['held-out'], samples: 1, before: false, every: 1, after: false },
  });
  const general = world.general();
  let failures = 0;
  let begun = 0;
  let stopped = 0;
  const planEvaluation: typeof general.planEvaluation = async (input) => {
    await until(() => begun >= 4);
    if (failures++ === 0) throw ApplicationFailure.nonRetryable('the disk is full');
    return general.planEvaluation(input);
  };
  world.runAgent = async ({ trialId }) => {
    if (!trialId.includes('-1.1-') || failures > 0) return { outcome: null, seconds: {} };
    begun++;
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await sleep('1h').finally(() => {
      clearInterval(beat);
      stopped++;
    });
    return { outcome: null, seconds: {} };
  };
  // A trial that is cut with its run is tried again with it.
  general.sealTrial = async ({ trialId, attempt, outcome }) => {
    world.log.push(`seal ${trialId} ${attempt} ${outcome}`);
    if (outcome === 'scored') world.outcomes.set(trialId, outcome);
  };
  general.planGroups = reopening(world, general.planGroups);
  await withWorkers(
    environment,
    { trialgate: { ...general, planEvaluation }, sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    async () => {
      const run = await start(newId());
      await until(() => world.count('blocked') === 1);
      await until(() => stopped >= 4);
      const next = environment.client.workflow.getHandle(run.workflowId);
      await next.executeUpdate('resume');
      await run.result();
    },
  );
  expect(world.log.filter((entry) => entry.startsWith('close'))).toEqual(['close 0.1', 'close 1.1']);
  // The evaluation ends before the next version is published.
  expect(world.log.findIndex((entry) => /^end .*eval@1\/0$/.test(entry))).toBeLessThan(
    world.log.indexOf('publish 2 1'),
  );
});
