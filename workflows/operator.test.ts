import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { until } from '../tests/support/harness/until.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import type { RunStatusReport } from './messages.ts';
import { withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';

const environment = useTemporal();
let serial = 0;

/** Starts a run of small iterations whose first train step waits until `free` is called. */
async function operated(
  world: FakeWorld,
  body: (run: Awaited<ReturnType<typeof start>>, free: () => void) => Promise<void>,
  iterations = 2,
): Promise<void> {
  Object.assign(world.config, { iterations, groups_per_iteration: 1 });
  const freed = Promise.withResolvers<void>();
  const training = Promise.withResolvers<void>();
  world.trainStep = async () => {
    training.resolve();
    await freed.promise;
  };
  await withWorkers(
    environment,
    { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    async () => {
      const run = await start();
      await training.promise;
      await body(run, freed.resolve).finally(freed.resolve);
      await run.result();
    },
  );
}
const start = () =>
  environment.client.workflow.start('trainRun', {
    workflowId: `operated${++serial}`,
    taskQueue: 'trialgate',
    args: [{}],
  });

test('a pause, an extension or a skip with an invalid argument is refused with the reason, and the run goes on', async () => {
  const month = 30 * 86_400;
  const refused: [string, unknown, string][] = [
    ['pause', { seconds: 0 }, 'seconds: expected a number above 0, at most 2592000 (30 days), found 0'],
    ['pause', { seconds: '10m' }, 'seconds: expected'],
    ['pause', { seconds: month + 1 }, 'seconds: expected'],
    ['extend', { trial: 't' }, 'seconds: expected'],
    ['extend', { trial: 't', seconds: -1 }, 'seconds: expected'],
    ['extend', { seconds: 60 }, "trial: expected a trial's id, found undefined"],
    ['skip', { trial: '' }, 'trial: expected a trial\'s id, found ""'],
    ['skip', null, "trial: expected a trial's id"],
  ];
  const world = new FakeWorld();
  await operated(world, async (run, free) => {
    for (const [update, argument, message] of refused) {
      await expect(run.executeUpdate(update, { args: [argument] })).rejects.toMatchObject({
        cause: { message: expect.stringContaining(message) },
      });
    }
    free();
  });
  expect(world.count('close 1.1')).toBe(1);
});

test('a run that is told to pause ends its iteration, begins no other, and goes on after a resume', async () => {
  const world = new FakeWorld();
  await operated(world, async (run, free) => {
    await run.executeUpdate('pause', { args: [{ seconds: 3600 }] });
    free();
    const next = environment.client.workflow.getHandle(run.workflowId);
    await until(async () => {
      const { phase, iteration } = await next.query<RunStatusReport>('status');
      return phase === 'paused' && iteration === 1;
    });
    expect(world.count('close 0.1')).toBe(1);
    expect(world.count('sample 1 from 1')).toBe(0);
    expect(await next.executeUpdate('resume')).toBe(`run ${run.workflowId} goes on`);
    expect(await next.executeUpdate('resume')).toMatch(/^run operated\d+ is under way \(\w+\)$/);
  });
});

test('a paused run begins no evaluation, and after a resume its status is no longer paused', async () => {
  const world = new FakeWorld();
  world.config.evaluation = { ...world.config.evaluation, tasks: ['held-out'], before: false, every: 1 };
  await operated(world, async (run, free) => {
    await run.executeUpdate('pause', { args: [{ seconds: 3600 }] });
    free();
    const next = environment.client.workflow.getHandle(run.workflowId);
    const stands = async (phase: string) => {
      const report = await next.query<RunStatusReport>('status');
      return report.phase === phase && report.iteration === 1;
    };
    await until(() => stands('paused'));
    await delay(500);
    expect(world.count('evaluate 1')).toBe(0);
    await next.executeUpdate('resume');
    await until(async () => !(await stands('paused')));
    await until(() => world.count('evaluate 1') === 1);
  });
});

test('a paused iteration’s deadline begins after the pause', async () => {
  const world = new FakeWorld();
  const seen = Promise.withResolvers<void>();
  world.runAgent = async ({ trialId }) => {
    if (trialId.includes('-1.1-')) await seen.promise;
    return { outcome: null, seconds: {} };
  };
  await operated(world, async (run, free) => {
    await run.executeUpdate('pause', { args: [{ seconds: 3600 }] });
    free();
    const next = environment.client.workflow.getHandle(run.workflowId);
    const statusOf = () => next.query<RunStatusReport>('status');
    await until(async () => (await statusOf()).phase === 'paused' && world.count('close 0.1') === 1);
    await delay(1000);
    const resumed = Date.now();
    await next.executeUpdate('resume');
    await until(async () => (await statusOf()).waits_for?.includes('trials for the batch') === true);
    expect(Date.parse((await statusOf()).until ?? '')).toBeGreaterThanOrEqual(
      resumed + world.config.deadlines.iteration * 1000,
    );
    seen.resolve();
  });
});

test('a change of a run’s settings that is still being stored at the end of an iteration holds for the next one', async () => {
  const world = new FakeWorld();
  await operated(world, async (run, free) => {
    const asked = Promise.withResolvers<void>();
    const { configureRun } = world;
    world.configureRun = async (input) => {
      asked.resolve();
      await until(() => world.count('close 0.1') === 1);
      return configureRun(input);
    };
    const change = run.executeUpdate('configure', { args: [{ iterations: 1 }] });
    await asked.promise;
    free();
    await change;
  });
  expect(world.log.filter((entry) => entry.startsWith('close'))).toEqual(['close 0.1']);
});

test('a change of a run’s settings during its last iteration holds for the evaluation after it', async () => {
  const world = new FakeWorld();
  world.config = { ...world.config, evaluation: { ...world.config.evaluation, before: false, after: false } };
  await operated(
    world,
    async (run, free) => {
      await run.executeUpdate('configure', {
        args: [{ evaluation: { tasks: ['held-out'], after: true, before: false, samples: 1 } }],
      });
      free();
    },
    1,
  );
  expect(world.log.filter((entry) => entry.startsWith('evaluate'))).toEqual(['evaluate 1']);
});
