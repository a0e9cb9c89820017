import { ApplicationFailure } from '@temporalio/common';
import { expect, test } from 'vitest';
import { until } from '../tests/support/harness/until.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { reopening } from '../tests/support/fakes/fake-faults.ts';
import type { RunStatusReport } from './messages.ts';
import { withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';

const environment = useTemporal();
let serial = 0;

const during = <T>(
  world: FakeWorld,
  general: Record<string, (input: never) => Promise<unknown>>,
  body: () => Promise<T>,
): Promise<T> =>
  withWorkers(
    environment,
    {
      trialgate: { ...world.general(), ...general },
      sandboxes: world.sandboxes(),
      host: world.host(),
      gpu: world.gpu(),
    },
    body,
  );
const start = () =>
  environment.client.workflow.start('trainRun', { workflowId: `told${++serial}`, taskQueue: 'trialgate', args: [{}] });
const statusOf = (id: string) => environment.client.workflow.getHandle(id).query<RunStatusReport>('status');

test('a run’s status lists the groups of an evaluation with their trials and deadline', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 1,
    evaluation: { tasks: ['held-out'], samples: 2, before: true, every: null, after: false },
  });
  const freed = Promise.withResolvers<void>();
  world.runAgent = async ({ trialId }) => {
    if (trialId.includes('-eval@0-0-')) await freed.promise;
    return { outcome: null, seconds: {} };
  };
  await during(world, {}, async () => {
    const run = await start();
    await until(() => world.log.some((entry) => /^end .*eval@0\/1$/.test(entry)));
    await expect.poll(async () => (await statusOf(run.workflowId)).groups_ended).toBe(1);
    const { phase, waits_for, until: deadline, groups_total, groups } = await statusOf(run.workflowId);
    expect({ phase, waits_for, groups_total }).toEqual({
      phase: 'evaluation',
      waits_for: '2 groups of held-out tasks',
      groups_total: 2,
    });
    expect(groups).toMatchObject([
      { task: 't', state: 'running', trials: { waiting: 2 }, until: deadline },
      { state: 'ended', trials: { scored: 2 }, until: null },
    ]);
    expect(Date.parse(deadline ?? '')).toBeLessThanOrEqual(Date.now() + world.config.deadlines.group * 1000);
    freed.resolve();
    await run.result();
  });
});

test('a run’s status lists the groups of an evaluation that runs beside a rollout', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    iterations: 2,
    evaluation: { tasks: ['held-out'], samples: 2, before: false, every: 1, after: false },
  });
  const freed = Promise.withResolvers<void>();
  world.runAgent = async ({ trialId }) => {
    if (/-(1\.1|eval@1)-0-/.test(trialId)) await freed.promise;
    return { outcome: null, seconds: {} };
  };
  const general = world.general();
  const planGroups: typeof general.planGroups = async (input) => ({
    ...(await general.planGroups(input)),
    waitsForLast: 1,
  });
  await during(world, { planGroups }, async () => {
    const run = await start();
    const id = run.workflowId;
    const waitsFor =
      '2 trials for the batch: 1 are there, 1 groups run; 1 trials run that only this step can use; 1 groups of held-out tasks';
    await until(async () => (await statusOf(id)).waits_for === waitsFor).finally(freed.resolve);
    const { phase, groups_total, groups_ended, trials, groups } = await statusOf(id);
    const states = groups.map(({ id: group, state, trials: its }) => [group.slice(id.length + 1), state, its]);
    expect({ phase, groups_total, groups_ended, trials }).toEqual({
      phase: 'rollout',
      groups_total: 4,
      groups_ended: 2,
      trials: { scored: 4 },
    });
    expect(states).toEqual([
      ['1.1/0', 'running', { waiting: 2, running: 0, ended: 0 }],
      ['1.1/1', 'ended', { scored: 2 }],
      ['eval@1/0', 'running', { waiting: 2 }],
      ['eval@1/1', 'ended', { scored: 2 }],
    ]);
    await run.result();
  });
});

test('a run’s status says what a batch, a train step and a publication wait for, and until when', async () => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const general = world.general();
  const told: unknown[] = [];
  const began = Date.now();
  const tell = async (seconds: number) => {
    const { phase, waits_for, until: deadline } = await statusOf(`told${serial}`);
    const since = Date.parse(deadline ?? '') - seconds * 1000;
    told.push([phase, waits_for, began <= since && since <= Date.now()]);
  };
  const assembleBatch: typeof general.assembleBatch = async (input) => {
    await tell(3600);
    return general.assembleBatch(input);
  };
  world.trainStep = () => tell(world.config.deadlines.train);
  world.publish = async ({ weight_version: to }) => {
    if (to.endsWith('@1')) await tell(5400);
    return {};
  };
  await during(world, { assembleBatch }, async () => (await start()).result());
  expect(told).toEqual([
    ['batch', 'the batch of what was sampled', true],
    ['train', 'the train step', true],
    ['publish', 'engines to confirm version 1', true],
  ]);
});

test('a run’s status says that the run waits for engines, and until when', async () => {
  const world = new FakeWorld();
  const [freed, confirmed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  world.publish = async () => {
    await confirmed.promise;
    return {};
  };
  await during(world, { acquirePool: () => freed.promise }, async () => {
    const run = await start();
    const tells = (phase: string, waitsFor: string) =>
      until(async () => {
        const { phase: at, waits_for, until: deadline } = await statusOf(run.workflowId);
        return at === phase && waits_for === waitsFor && Date.parse(deadline ?? '') > Date.now();
      });
    await tells('waiting for engines', 'engines that no other run has').finally(freed.resolve);
    await tells('publish', 'engines to confirm version 0').finally(confirmed.resolve);
    await run.result();
  });
});

test('after a blocked run is resumed, its status counts the groups that run again as running', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { iterations: 1, max_attempts: 1 });
  const freed = Promise.withResolvers<void>();
  let isRepaired = false;
  world.runAgent = async () => {
    if (!isRepaired) return { outcome: 'infra_error', reason: 'the disk is full', seconds: {} };
    await freed.promise;
    return { outcome: null, seconds: {} };
  };
  const general = world.general();
  const reopened = reopening(world, general.planGroups);
  const planGroups: typeof reopened = async (input) => {
    const rollout = await reopened(input);
    if (rollout.isReady && !isRepaired) throw ApplicationFailure.nonRetryable('most trials failed');
    return rollout;
  };
  await during(world, { planGroups }, async () => {
    const run = await start();
    await until(() => world.count('blocked') === 1);
    expect(await statusOf(run.workflowId)).toMatchObject({ groups_total: 2, groups_ended: 2 });
    isRepaired = true;
    await run.executeUpdate('resume');
    await until(async () => (await statusOf(run.workflowId)).groups_ended === 0).finally(freed.resolve);
    expect(await run.result()).toMatchObject({ groups_total: 2, groups_ended: 2, trials: { scored: 4 } });
  });
});
