import { Context, sleep } from '@temporalio/activity';
import { and, eq } from 'drizzle-orm';
import { setTimeout as delay } from 'node:timers/promises';
import { beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import type { Database } from '../../store/database.ts';
import { groups, iterations, runs, trials } from '../../store/schema.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { callRecord } from '../support/scenarios/call-record.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { until } from '../support/harness/until.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { GroupReport, RunStatusReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { startRun, type RunHandle } from '../../cli/run/start-run.ts';

const environment = useTemporal();
const store = useDatabase();
let db: Database;
let serial = 0;
beforeAll(() => void (db = store.db));

/** Runs a run whose trials that match `slow` last until `free` is called. Slow trials of the first two groups have begun before other trials end. */
async function run(
  settings: Record<string, unknown>,
  slow: RegExp,
  body: (handle: RunHandle, id: string, free: () => void, world: FakeWorld) => Promise<void>,
): Promise<void> {
  await using folder = await temporaryHome();
  const { folder: task } = await taskWith(folder.home, 'true');
  const id = `tail${++serial}`;
  const world = new FakeWorld();
  const freed = Promise.withResolvers<void>();
  const config = runConfig.parse({
    model: 'm',
    tasks: [task],
    iterations: 1,
    groups_per_iteration: 2,
    group_size: 3,
    ...settings,
  });
  const first = [0, 1].flatMap((group) =>
    Array.from(
      { length: config.group_size + config.over_sampling },
      (_, trialIndex) => `${id}-0.1-${group}-${trialIndex}`,
    ),
  );
  const slowFirst = first.filter((trial) => slow.test(trial));
  world.runAgent = async ({ trialId, attempt }) => {
    const { policyVersion = null } = (await outcomeOf(trialId)) ?? {};
    await recordCalls(db, [callRecord({ trialId, attempt, choice: { policyVersion } })]);
    world.log.push(`agent ${trialId}`);
    if (first.includes(trialId)) await until(() => slowFirst.every((trial) => world.count(`agent ${trial}`) > 0));
    if (slow.test(trialId)) {
      const beat = setInterval(() => Context.current().heartbeat(), 200);
      try {
        await Promise.race([freed.promise, sleep('1h')]);
      } catch (error) {
        world.log.push(`stopped ${trialId}`);
        throw error;
      } finally {
        clearInterval(beat);
      }
    }
    return { outcome: null, seconds: {} };
  };
  const records = recordsOver(world, { db, temporal: environment.client, home: folder.home });
  const activities = {
    trialgate: records,
    sandboxes: { openTrial: records.openTrial },
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, activities, async () => {
    const handle = await startRun(environment.client, id, config);
    try {
      await body(handle, id, () => freed.resolve(), world);
    } finally {
      freed.resolve();
      await handle.terminate().catch(() => {});
    }
  });
}

const outcomeOf = async (id: string) => (await db.select().from(trials).where(eq(trials.id, id)))[0];
const batchOf = async (id: string) =>
  (await db.select().from(groups).where(eq(groups.runId, id))).map((row) => [row.iteration, row.batchIteration]);
const isDone = async (id: string, iteration: number) =>
  (
    await db
      .select()
      .from(iterations)
      .where(and(eq(iterations.runId, id), eq(iterations.iteration, iteration)))
  ).some(({ status }) => status === 'done');
const statusOf = (handle: RunHandle) => handle.query<RunStatusReport>('status');

test('with `stragglers: cancel` a group that has its quorum cancels its straggler and ends', async () => {
  await run({ group_quorum: 2, stragglers: 'cancel' }, /-2$/, async (handle, id, _free, world) => {
    await handle.result();
    expect(await outcomeOf(`${id}-0.1-0-2`)).toMatchObject({
      outcome: 'cancelled',
      rewards: null,
      reason: 'enough trials of the group had ended',
    });
    expect(world.count(`stopped ${id}-0.1-0-2`)).toBe(1);
    expect(await outcomeOf(`${id}-0.1-0-1`)).toMatchObject({ outcome: 'scored', batchIteration: 0 });
  });
});

test('with over-sampling the first trials to end fill the group and the rest are cancelled', async () => {
  await run({ group_size: 2, over_sampling: 1 }, /-2$/, async (handle, id) => {
    await handle.result();
    const all = await db.select().from(trials).where(eq(trials.runId, id));
    expect(all.map(({ outcome }) => outcome).toSorted()).toEqual([
      'cancelled',
      'cancelled',
      'scored',
      'scored',
      'scored',
      'scored',
    ]);
  });
});

test('a straggler that is carried over does not hold up its step and is trained on in a later one', async () => {
  await run(
    { iterations: 6, max_staleness: 2, group_quorum: 2, stragglers: 'carry_over' },
    /0\.1-0-2$/,
    async (_handle, id, free) => {
      await until(() => isDone(id, 0));
      expect(await outcomeOf(`${id}-0.1-0-2`)).toMatchObject({ outcome: null });
      free();
      await environment.client.workflow.getHandle(id).result();
      const straggler = await outcomeOf(`${id}-0.1-0-2`);
      expect(straggler?.outcome).toBe('scored');
      expect([1, 2]).toContain(straggler?.batchIteration);
      expect(await outcomeOf(`${id}-0.1-0-1`)).toMatchObject({ batchIteration: 0 });
    },
  );
});

test('a straggler that is carried over can be skipped, and stops when its run is cancelled', async () => {
  await run(
    { iterations: 4, max_staleness: 3, max_concurrent_groups: 2, group_quorum: 2, stragglers: 'carry_over' },
    /0\.1-[01]-2$/,
    async (_handle, id, _free, world) => {
      const now = environment.client.workflow.getHandle(id);
      const paused = Promise.withResolvers<void>();
      world.trainStep = async () => {
        if (world.count('train 1') > 0) await paused.promise;
      };
      await until(() => isDone(id, 0));
      await now.executeUpdate('pause', { args: [{}] }).finally(paused.resolve);
      const [skipped, cancelled] = [`${id}-0.1-0-2`, `${id}-0.1-1-2`];
      expect(await now.executeUpdate('skip', { args: [{ trial: skipped }] })).toBe(`trial ${skipped} is skipped`);
      await until(async () => (await outcomeOf(skipped))?.outcome === 'cancelled');
      await now.cancel();
      await expect(now.result()).rejects.toThrow();
      await until(() => world.count(`stopped ${cancelled}`) === 1);
      expect(await outcomeOf(cancelled)).toMatchObject({ outcome: null });
    },
  );
});

test('a step waits while it would make more running trials too old than `max_stale_stragglers` allows', async () => {
  const settings = {
    iterations: 3,
    max_staleness: 1,
    group_size: 4,
    group_quorum: 2,
    stragglers: 'carry_over',
    max_stale_stragglers: 1,
  };
  await run(settings, /0\.1-0-[23]$/, async (handle, id, _free, world) => {
    await until(() => isDone(id, 0));
    await until(async () =>
      /8 trials for the batch: (8|9|1\d) are there/.test((await statusOf(handle)).waits_for ?? ''),
    );
    expect(world.count('train 2')).toBe(0);
    await handle.executeUpdate('skip', { args: [{ trial: `${id}-0.1-0-3` }] });
    await until(() => isDone(id, 1));
    expect(await outcomeOf(`${id}-0.1-0-3`)).toMatchObject({ outcome: 'cancelled', batchIteration: 1 });
    await handle.result();
    await until(async () => (await outcomeOf(`${id}-0.1-0-2`))?.outcome === 'cancelled');
    expect(await outcomeOf(`${id}-0.1-0-2`)).toMatchObject({ reason: 'older than the run allows' });
  });
});

test('with `max_staleness` the next iteration samples while a slow group runs, which is trained on before it is too old', async () => {
  await run({ iterations: 3, max_staleness: 1 }, /0\.1-0-0$/, async (handle, id, free, world) => {
    await until(() => isDone(id, 0));
    await until(async () => (await batchOf(id)).some(([iteration]) => iteration === 1));
    // The next step is the last one that can use this group.
    await until(async () => (await statusOf(handle)).waits_for?.includes('1 groups run') === true);
    expect(world.count('train 2')).toBe(0);
    free();
    await handle.result();
    expect(await outcomeOf(`${id}-0.1-0-0`)).toMatchObject({ outcome: 'scored', batchIteration: 1 });
    const used = (await batchOf(id)).map(([, batch]) => batch).toSorted();
    expect(used).toEqual([0, 0, 1, 1, 2, 2]);
  });
});

test('an iteration past its deadline truncates its slowest trial and trains on the rest', async () => {
  await run({ deadlines: { iteration: 3 } }, /0\.1-0-0$/, async (handle, id) => {
    await handle.result();
    expect(await outcomeOf(`${id}-0.1-0-0`)).toMatchObject({
      outcome: 'truncated',
      reason: 'the group reached its deadline',
      batchIteration: 0,
    });
    expect(await batchOf(id)).toEqual([
      [0, 0],
      [0, 0],
    ]);
  });
});

test('a skipped trial is cancelled and does not run again', async () => {
  await run({}, /0\.1-0-0$/, async (handle, id, _free, world) => {
    await until(() => world.count(`agent ${id}-0.1-0-0`) === 1);
    expect(await handle.executeUpdate('skip', { args: [{ trial: `${id}-0.1-0-0` }] })).toBe(
      `trial ${id}-0.1-0-0 is skipped`,
    );
    await handle.result();
    expect(await outcomeOf(`${id}-0.1-0-0`)).toMatchObject({ outcome: 'cancelled', reason: 'skipped by a person' });
    expect(world.count(`agent ${id}-0.1-0-0`)).toBe(1);
    await expect(
      environment.client.workflow.getHandle(id).executeUpdate('skip', { args: [{ trial: 'nobody' }] }),
    ).rejects.toThrow();
  });
});

test('a trial that was given more time runs past its old deadline', async () => {
  await run({ deadlines: { trial: 3, group: 4 } }, /0\.1-0-[01]$/, async (handle, id, free, world) => {
    await until(() => world.count(`agent ${id}-0.1-0-0`) === 1);
    await handle.executeUpdate('extend', { args: [{ trial: `${id}-0.1-0-0`, seconds: 600 }] });
    await until(async () => (await outcomeOf(`${id}-0.1-0-1`))?.outcome === 'timed_out');
    await delay(2000);
    expect(await outcomeOf(`${id}-0.1-0-0`)).toMatchObject({ outcome: null });
    free();
    await handle.result();
    expect(await outcomeOf(`${id}-0.1-0-0`)).toMatchObject({ outcome: 'scored' });
  });
});

test('`status` shows each group’s trials by state and the deadline until which the group waits', async () => {
  await run({}, /0\.1-[01]-0$/, async (handle, id, free) => {
    const group = `${id}/0.1/0`;
    const groupStatus = async () => (await statusOf(handle)).groups.find((each) => each.id === group);
    await until(
      async () =>
        (
          await db
            .select()
            .from(trials)
            .where(and(eq(trials.groupId, group), eq(trials.outcome, 'scored')))
        ).length === 2,
    );
    expect(await groupStatus()).toMatchObject({
      task: expect.stringContaining('/task'),
      state: 'running',
      trials: { waiting: 3 },
    });
    // The other group's end makes the run poll its groups.
    await handle.executeUpdate('skip', { args: [{ trial: `${id}-0.1-1-0` }] });
    await until(async () => (await groupStatus())?.trials['ended'] === 2);
    const [row] = await db.select().from(groups).where(eq(groups.id, group));
    const before = row?.deadlineAt?.getTime() ?? 0;
    expect(await groupStatus()).toMatchObject({
      trials: { waiting: 0, running: 1, ended: 2 },
      since: row?.openedAt.toISOString(),
      until: new Date(before).toISOString(),
    });
    expect((await statusOf(handle)).groups[1]).toMatchObject({
      state: 'ended',
      trials: { scored: 2, cancelled: 1 },
      until: null,
    });

    await handle.executeUpdate('extend', { args: [{ trial: `${id}-0.1-0-0`, seconds: 7200 }] });
    await until(async () => Date.parse((await groupStatus())?.until ?? '') > before);
    const own = await environment.client.workflow.getHandle(group).query<GroupReport>('status');
    expect(own).toMatchObject({
      id: group,
      trials: [
        { id: `${id}-0.1-0-0`, state: 'agent', until: own.until },
        { state: 'scored', until: null },
        { state: 'scored', until: null },
      ],
    });
    expect((await groupStatus())?.until).toBe(own.until);
    expect((await db.select().from(groups).where(eq(groups.id, group)))[0]?.deadlineAt?.toISOString()).toBe(own.until);
    free();
    await handle.result();
  });
});

test.each([
  ['a person resumes it', 'resume', {}],
  ['the given seconds are over', 'pause', { seconds: 1 }],
])('a paused run does not train, and goes on when %s', async (_, update, argument) => {
  await run({ iterations: 1 }, /0\.1-0-0$/, async (handle, id, free, world) => {
    await until(() => world.count(`agent ${id}-0.1-0-0`) === 1);
    await expect(handle.executeUpdate('pause', { args: [{ seconds: -1 }] })).rejects.toThrow();
    await handle.executeUpdate('pause', { args: [{}] });
    free();
    await until(async () => (await statusOf(handle)).phase === 'paused');
    expect((await statusOf(handle)).until).not.toBeNull();
    expect(world.count('train 1')).toBe(0);
    await handle.executeUpdate(update, { args: [argument] });
    await handle.result();
    expect(await isDone(id, 0)).toBe(true);
  });
});

test('`configure` refuses a bad setting, and a good one holds from the next group on and in later iterations', async () => {
  await run({ iterations: 3 }, /0\.1-(0-0|2-1)$/, async (handle, id, free, world) => {
    await until(async () => (await statusOf(handle)).waits_for?.endsWith('3 are there, 1 groups run') === true);
    // A group's end is signalled twice, and each signal makes the run poll.
    await delay(5_000);
    const refused: unknown = await handle
      .executeUpdate('configure', { args: [{ group_size: 'many' }] })
      .catch((error: unknown) => error);
    expect(refused).toMatchObject({ cause: { cause: { message: expect.stringContaining('group_size') } } });
    await handle.executeUpdate('configure', {
      args: [{ group_size: 2, iterations: 2, max_staleness: 1, deadlines: { trial: 777 } }],
    });
    // A group of the next iteration may start beside this one's trials at once, not a minute later.
    await until(() => world.count(`agent ${id}-0.1-2-1`) === 1, 30_000);
    expect(await isDone(id, 0)).toBe(false);
    const secondsOf = async (group: string, trialIndex: number) => {
      const status = await environment.client.workflow.getHandle(group).query<GroupReport>('status');
      return (Date.parse(status.trials[trialIndex]?.until ?? '') - Date.now()) / 1000;
    };
    expect(await secondsOf(`${id}/0.1/0`, 0)).toBeLessThanOrEqual(600);
    expect(await secondsOf(`${id}/0.1/2`, 1)).toBeGreaterThan(600);
    free();
    await environment.client.workflow.getHandle(id).result();
    expect(world.log.filter((entry) => entry.startsWith(`agent ${id}-1.1`))).toHaveLength(2);
    expect(await isDone(id, 1)).toBe(true);
    expect(await db.select().from(runs).where(eq(runs.id, id))).toMatchObject([
      { status: 'completed', config: { group_size: 2, iterations: 2 } },
    ]);
  });
});
