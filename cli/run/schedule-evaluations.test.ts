import { beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { FakeWorld } from '../../tests/support/fakes/fake-activities.ts';
import { withWorkers } from '../../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { printSchedules } from '../show/print-schedules.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import { listSchedules, removeSchedule, scheduleEvaluations } from './schedule-evaluations.ts';

const environment = useTemporal();
const store = useDatabase();
beforeAll(async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values({ id: 'first', config });
});

const schedule = (runId: string, cron: string, timezone?: string) =>
  scheduleEvaluations({ client: environment.client, db: store.db }, { runId, samples: 4 }, { cron, timezone });

test('a run has at most one schedule of evaluations, with its cron time and timezone, and none after its removal', async () => {
  await schedule('first', '0 3 * * *', 'Europe/Berlin');
  await expect(schedule('first', '0 4 * * *')).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('run first has a schedule'),
  });
  const { action, policies } = await environment.client.schedule.getHandle('first/evaluate').describe();
  expect(action).toMatchObject({
    workflowType: 'evaluateRun',
    taskQueue: 'trialgate',
    args: [{ runId: 'first', samples: 4 }],
  });
  expect(policies.overlap).toBe('SKIP');
  await expect
    .poll(() => listSchedules(environment.client))
    .toMatchObject([{ run: 'first', cron: '0 3 * * *', paused: false, next: expect.stringMatching(/T0[12]:00:00/) }]);
  expect(printSchedules(await listSchedules(environment.client), false)).toContain('0 3 * * *');
  await removeSchedule(environment.client, 'first');
  await expect(removeSchedule(environment.client, 'first')).rejects.toMatchObject({ code: 'not_found' });
  await expect.poll(() => listSchedules(environment.client)).toEqual([]);
});

test('a schedule of evaluations starts an evaluation of its run, with its number of samples, on the workers’ queue', async () => {
  const asked: unknown[] = [];
  const world = new FakeWorld();
  const own = {
    borrowPool: async () => ({ version: 3, published: true }),
    planEvaluationOnDemand: async (request: { runId: string; version: number }) => {
      asked.push(request);
      const { runId, version } = request;
      const group = {
        runId,
        kind: 'eval' as const,
        iteration: null,
        take: null,
        ordinal: 0,
        size: 2,
        task: 't',
        agent: 'a',
        policyVersion: version,
      };
      return {
        id: `eval@${version}.1`,
        plans: [{ ...group, id: `${runId}/eval@${version}.1/0`, trialPrefix: `${runId}-eval.${version}.1-0` }],
        deadlineSeconds: 600,
      };
    },
    returnPool: async () => void world.log.push('return'),
  };
  await schedule('first', '0 3 * * *');
  const nightly = environment.client.schedule.getHandle('first/evaluate');
  await withWorkers(
    environment,
    { [TASK_QUEUE]: { ...world.general(), ...own }, sandboxes: world.sandboxes(), host: world.host() },
    async () => {
      await nightly.trigger();
      const started = async () => (await nightly.describe()).info.recentActions[0]?.action.workflow;
      await expect.poll(started).toMatchObject({ workflowId: expect.stringMatching(/^first\/evaluate-20\d\d-/) });
      const { workflowId, firstExecutionRunId } = (await started()) ?? {};
      const evaluation = environment.client.workflow.getHandle(workflowId ?? '', firstExecutionRunId);
      expect(await evaluation.result()).toEqual({ runId: 'first', id: 'eval@3.1', version: 3 });
      expect(await evaluation.describe()).toMatchObject({
        type: 'evaluateRun',
        taskQueue: TASK_QUEUE,
        status: { name: 'COMPLETED' },
      });
    },
  );
  expect(asked).toEqual([{ runId: 'first', samples: 4, version: 3 }]);
  expect(world.log.filter((entry) => /^(seal|return)/.test(entry)).toSorted()).toEqual([
    'return',
    'seal first-eval.3.1-0-0 1 scored',
    'seal first-eval.3.1-0-1 1 scored',
  ]);
  await removeSchedule(environment.client, 'first');
});

test.each([
  ['first', 'every night', undefined, 'Temporal refuses "every night": '],
  ['first', '0 3 * * *', 'Mars/Olympus', 'Temporal refuses "0 3 * * *" in Mars/Olympus: '],
  ['nobody', '0 3 * * *', undefined, 'there is no run nobody'],
])(
  'a schedule of evaluations of the run %s at %j in the timezone %s is refused with the reason',
  async (runId, cron, timezone, message) => {
    await expect(schedule(runId, cron, timezone)).rejects.toThrow(message);
  },
);
