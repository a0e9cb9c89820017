import { ApplicationFailure } from '@temporalio/common';
import { Context, sleep } from '@temporalio/activity';
import { expect, test } from 'vitest';
import type { GroupPlan } from '../activities/rollout/group-plan.ts';
import { until } from '../tests/support/harness/until.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import type { GroupReport, RunStatusReport } from './messages.ts';
import { endWorkers, withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';

type Activity = (input: never) => Promise<unknown>;

const environment = useTemporal();
let serial = 0;

/** Returns the plan of a group of three trials. */
function plan(): GroupPlan {
  const id = `group${++serial}`;
  return {
    id: `${id}/0.1/0`,
    trialPrefix: `${id}-0.1-0`,
    runId: id,
    kind: 'train',
    iteration: 0,
    take: 1,
    ordinal: 0,
    size: 3,
    task: 't',
    agent: 'a',
    policyVersion: 0,
  };
}
const start = (group: GroupPlan) =>
  environment.client.workflow.start('rolloutGroup', { workflowId: group.id, taskQueue: 'trialgate', args: [group] });
const during = <T>(
  world: FakeWorld,
  own: { general?: Record<string, Activity>; host?: Record<string, Activity> },
  body: () => Promise<T>,
): Promise<T> =>
  withWorkers(
    environment,
    {
      trialgate: { ...world.general(), ...own.general },
      sandboxes: world.sandboxes(),
      host: { ...world.host(), ...own.host },
      gpu: world.gpu(),
    },
    body,
  );

/** Waits until `freed` resolves or the activity is cancelled. */
async function hold(freed: Promise<void>): Promise<void> {
  const beat = setInterval(() => Context.current().heartbeat(), 200);
  await Promise.race([freed, sleep('1h')]).finally(() => clearInterval(beat));
}

test('a trial that ends as infra_error does not count towards its group’s quorum', async () => {
  const world = new FakeWorld();
  const freed = Promise.withResolvers<void>();
  const group = plan();
  Object.assign(world.config, { max_attempts: 1, group_quorum: 2, group_size: 3, stragglers: 'cancel' });
  world.runAgent = async ({ trialId }) => {
    if (trialId.endsWith('-0')) return { outcome: 'infra_error', reason: 'the disk is full', seconds: {} };
    if (trialId.endsWith('-2')) await hold(freed.promise);
    return { outcome: null, seconds: {} };
  };
  await during(world, {}, async () => {
    const running = await start(group);
    await until(
      () =>
        world.outcomes.get(`${group.trialPrefix}-1`) === 'scored' &&
        world.count(`seal ${group.trialPrefix}-0 1 infra_error`) === 1,
    );
    freed.resolve();
    expect(await running.result()).toEqual(['infra_error', 'scored', 'scored']);
  });
});

test('a trial that ends as infra_error is tried again after a wait, at most max_attempts times', async () => {
  const world = new FakeWorld();
  const group = plan();
  world.config.max_attempts = 3;
  world.runAgent = async () => ({ outcome: 'infra_error', reason: 'the disk is full', seconds: {} });
  await during(world, {}, async () => {
    const running = await start({ ...group, size: 1 });
    expect(await running.result()).toEqual(['infra_error']);
    const { events } = await running.fetchHistory();
    const timers = (events ?? []).map(({ timerStartedEventAttributes: timer }) =>
      Number(timer?.startToFireTimeout?.seconds),
    );
    expect(timers.filter((seconds) => seconds <= 32)).toEqual([2, 4]);
  });
  expect([1, 2, 3, 4].map((attempt) => world.count(`seal ${group.trialPrefix}-0 ${attempt} infra_error`))).toEqual([
    1, 1, 1, 0,
  ]);
});

test('a trial that is skipped while its verifier runs ends as cancelled', async () => {
  const world = new FakeWorld();
  const freed = Promise.withResolvers<void>();
  const group = plan();
  let verifying = 0;
  const verifyTrial = async () => {
    if (++verifying === 1) await hold(freed.promise);
    return { outcome: null, rewards: { reward: 1 }, seconds: {} };
  };
  await during(world, { host: { verifyTrial } }, async () => {
    const running = await start({ ...group, size: 1 });
    await until(() => verifying >= 1);
    await running.signal('skip', { trialIndex: 0 });
    freed.resolve();
    expect(await running.result()).toEqual(['cancelled']);
  });
});

test('a trial that is cut before its sandbox is open is sealed as truncated, whatever attempt is open', async () => {
  const world = new FakeWorld();
  const group = plan();
  const sealed: unknown[] = [];
  const openTrial = async () => hold(Promise.withResolvers<void>().promise);
  const sealTrial = async (sealing: unknown) => void sealed.push(sealing);
  await withWorkers(
    environment,
    { trialgate: { ...world.general(), sealTrial }, sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const running = await start({ ...group, size: 1 });
      await running.signal('cut');
      expect(await running.result()).toEqual(['truncated']);
    },
  );
  // The store knows the number of the open attempt.
  expect(sealed).toEqual([
    { trialId: `${group.trialPrefix}-0`, outcome: 'truncated', reason: 'cut between two attempts' },
  ]);
});

test('a run starts a group’s workflow again when it failed', async () => {
  const world = new FakeWorld();
  const id = `run${++serial}`;
  Object.assign(world.config, { iterations: 1 });
  const { openGroup } = world.general();
  let failures = 0;
  const failing: Activity = async (group: GroupPlan) => {
    if (group.ordinal === 0 && failures++ === 0) throw ApplicationFailure.nonRetryable('no such row');
    return openGroup();
  };
  await during(world, { general: { openGroup: failing } }, async () => {
    await (
      await environment.client.workflow.start('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}] })
    ).result();
  });
  expect(failures).toBe(2);
  expect(world.count(`end ${id}/0.1/0`)).toBe(1);
});

test.each([
  ['a group does not report the end of each straggler to the store when no train step waits for it', {}, 2, 0],
  [
    'a group reports the end of each straggler to the store when a train step may wait for it',
    { max_stale_stragglers: 0 },
    3,
    0,
  ],
  ['a group whose rewards are equal at its quorum reports its end again with its last trial', {}, 3, 1],
])('%s', async (_, settings, times, waits) => {
  const world = new FakeWorld();
  Object.assign(world.config, {
    group_size: 3,
    group_quorum: 1,
    max_staleness: 1,
    stragglers: 'carry_over',
    ...settings,
  });
  const group = plan();
  const freed = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  world.runAgent = async ({ trialId }) => {
    await freed[Number(trialId.at(-1)) - 1]?.promise;
    return { outcome: null, seconds: {} };
  };
  let told = 0;
  const endGroup = async () => told++ < waits;
  await during(world, { general: { endGroup } }, async () => {
    const running = await start(group);
    await until(() => told >= 1);
    freed[0]?.resolve();
    await until(async () => (await running.query<GroupReport>('status')).trials[1]?.state === 'scored');
    freed[1]?.resolve();
    await running.result();
  });
  expect(told).toBe(times);
});

test('a run that ends cancels its stragglers, also those that no poll of the rollout listed', async () => {
  const world = new FakeWorld();
  const id = `run${++serial}`;
  Object.assign(world.config, { group_quorum: 1, max_staleness: 1, stragglers: 'carry_over' });
  world.runAgent = async ({ trialId }) => {
    if (trialId === `${id}-0.1-0-1`) await hold(Promise.withResolvers<void>().promise);
    return { outcome: null, seconds: {} };
  };
  const listRunningGroups = async () => [`${id}/0.1/0`];
  await during(world, { general: { listRunningGroups } }, async () => {
    await (
      await environment.client.workflow.start('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}] })
    ).result();
    expect(await environment.client.workflow.getHandle(`${id}/0.1/0`).result()).toEqual(['scored', 'cancelled']);
  });
});

test('a trial whose deadline was extended beyond its iteration’s is not cut at the iteration’s deadline', async () => {
  const world = new FakeWorld();
  const id = `run${++serial}`;
  world.config.iterations = 1;
  const freed = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const held = new Set<string>();
  world.runAgent = async ({ trialId }) => {
    held.add(trialId);
    await hold(freed[trialId.includes('-0.1-0-') ? 0 : 1]?.promise ?? Promise.resolve());
    return { outcome: null, seconds: {} };
  };
  await during(world, {}, async () => {
    const run = await environment.client.workflow.start('trainRun', {
      workflowId: id,
      taskQueue: 'trialgate',
      args: [{}],
    });
    await until(() => held.size === 4);
    const asked = Date.now();
    await run.executeUpdate('extend', { args: [{ trial: `${id}-0.1-0-0`, seconds: 10_800 }] });
    const status = () => run.query<RunStatusReport>('status');
    const isExtended = ({ until: end }: { until: string | null }) =>
      end !== null && Date.parse(end) >= asked + 10_800_000;
    await until(async () => (await status()).groups.some(isExtended));
    freed[1]?.resolve();
    // The next poll shows it.
    await until(async () => (await status()).waits_for === '2 trials for the batch: 1 are there, 1 groups run');
    expect(await status().finally(freed[0]?.resolve)).toSatisfy(isExtended);
    await run.result();
  });
});

test('a trial whose deadline was extended beyond its evaluation’s is not cut at the evaluation’s deadline', async () => {
  const world = new FakeWorld();
  const id = `run${++serial}`;
  Object.assign(world.config, {
    iterations: 0,
    evaluation: { tasks: ['held-out'], samples: 2, before: true, every: null, after: false },
  });
  const freed = Promise.withResolvers<void>();
  const held = new Set<string>();
  world.runAgent = async ({ trialId }) => {
    held.add(trialId);
    await hold(freed.promise);
    return { outcome: null, seconds: {} };
  };
  await during(world, {}, async () => {
    const { workflow } = environment.client;
    const run = await workflow.start('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}] });
    await until(() => held.size === 4);
    await workflow.getHandle(`${id}/eval@0/0`).signal('extend', { trialIndex: 0, seconds: 10_800 });
    const hasTimer = async () => {
      const { events } = await workflow.getHandle(`${id}/eval@0`).fetchHistory();
      return events?.some(
        ({ timerStartedEventAttributes: timer }) => Number(timer?.startToFireTimeout?.seconds) > 10_000,
      );
    };
    const isTold = async () =>
      Date.parse((await run.query<RunStatusReport>('status')).until ?? '') > Date.now() + 7_200_000;
    await until(async () => (await hasTimer()) && (await isTold())).finally(freed.resolve);
    await run.result();
  });
});

test('a group that was cut ignores an extension of a trial, and its status says when it was cut', async () => {
  const world = new FakeWorld();
  const group = plan();
  const before = Date.now();
  const verifying = Promise.withResolvers<void>();
  const freed = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  world.runAgent = async () => {
    begun.resolve();
    await hold(freed.promise);
    return { outcome: null, seconds: {} };
  };
  const verifyTrial = async () => {
    verifying.resolve();
    await hold(freed.promise);
    return { outcome: null, rewards: { reward: 1 }, seconds: {} };
  };
  await during(world, { host: { verifyTrial } }, async () => {
    const running = await start({ ...group, size: 1 });
    await begun.promise;
    await running.signal('cut');
    await verifying.promise;
    await running.signal('extend', { trialIndex: 0, seconds: 600 });
    const deadline = Date.parse((await running.query<GroupReport>('status').finally(freed.resolve)).until);
    expect(deadline).toBeGreaterThan(before - 60_000);
    expect(deadline).toBeLessThanOrEqual(Date.now());
    expect(await running.result()).toEqual(['truncated']);
  });
  expect(world.log.filter((entry) => entry.startsWith('extend'))).toEqual([]);
});

test('a trial is cut when its group is told to cut and to extend it at the same time', async () => {
  const world = new FakeWorld();
  world.runAgent = async () => {
    await hold(Promise.withResolvers<void>().promise);
    return { outcome: null, seconds: {} };
  };
  // No worker runs yet, so both signals come with the workflow's first task.
  await endWorkers(environment);
  const running = await start({ ...plan(), size: 1 });
  await running.signal('cut');
  await running.signal('extend', { trialIndex: 0, seconds: 5000 });
  await during(world, {}, async () => expect(await running.result()).toEqual(['truncated']));
});

test('a trial’s deadline keeps an extension that was given before the agent began', async () => {
  const world = new FakeWorld();
  const [opening, opened, freed] = [
    Promise.withResolvers<void>(),
    Promise.withResolvers<void>(),
    Promise.withResolvers<void>(),
  ];
  world.runAgent = async () => {
    await hold(freed.promise);
    return { outcome: null, seconds: {} };
  };
  const openTrial = async () => {
    opening.resolve();
    await opened.promise;
    return { finished: null, attempt: 1, host: 'host' };
  };
  await withWorkers(
    environment,
    { trialgate: world.general(), sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() },
    async () => {
      const running = await start({ ...plan(), size: 1 });
      await opening.promise;
      await running.signal('extend', { trialIndex: 0, seconds: 50_000 });
      const trialOf = async () => (await running.query<GroupReport>('status')).trials[0];
      const before = Date.now();
      opened.resolve();
      await until(async () => (await trialOf())?.state === 'agent');
      const given = Date.parse((await trialOf().finally(freed.resolve))?.until ?? '');
      expect(given).toBeGreaterThanOrEqual(before + (world.config.deadlines.trial + 50_000) * 1000);
      await running.result();
    },
  );
});
