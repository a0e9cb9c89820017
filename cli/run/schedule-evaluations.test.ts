import { beforeAll, expect, test } from 'vitest';
import { runConfig } from '../../activities/run-config.ts';
import { runs } from '../../store/schema.ts';
import { useDatabase } from '../../store/testing/use-database.ts';
import { useTemporal } from '../../workflows/use-temporal.ts';
import { printSchedules } from '../show/print-schedules.ts';
import { listSchedules, removeSchedule, scheduleEvaluations } from './schedule-evaluations.ts';

const environment = useTemporal();
const store = useDatabase();
beforeAll(async () => {
  const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
  await store.db.insert(runs).values({ id: 'first', config });
});

const schedule = (runId: string, cron: string, timezone?: string) => scheduleEvaluations({ client: environment.client, db: store.db }, { runId, samples: 4 }, { cron, timezone });

test('a schedule does not start what it should when it should, or stays after it was removed', async () => {
  await schedule('first', '0 3 * * *', 'Europe/Berlin');
  await expect(schedule('first', '0 4 * * *')).rejects.toMatchObject({ code: 'bad_input', message: expect.stringContaining('run first has a schedule') });
  const { action, policies } = await environment.client.schedule.getHandle('first/evaluate').describe();
  expect(action).toMatchObject({ workflowType: 'evaluateRun', taskQueue: 'trialgate', args: [{ runId: 'first', samples: 4 }] });
  expect(policies.overlap).toBe('SKIP');
  await expect.poll(() => listSchedules(environment.client)).toMatchObject([{ run: 'first', cron: '0 3 * * *', paused: false, next: expect.stringMatching(/T0[12]:00:00/) }]);
  expect(printSchedules(await listSchedules(environment.client), false)).toContain('0 3 * * *');
  await removeSchedule(environment.client, 'first');
  await expect(removeSchedule(environment.client, 'first')).rejects.toMatchObject({ code: 'not_found' });
  await expect.poll(() => listSchedules(environment.client)).toEqual([]);
});

test.each([
  ['first', 'every night', undefined, 'Temporal refuses "every night": '],
  ['first', '0 3 * * *', 'Mars/Olympus', 'Temporal refuses "0 3 * * *" in Mars/Olympus: '],
  ['nobody', '0 3 * * *', undefined, 'there is no run nobody'],
])('a schedule of %s at %j in %s is made, or is a crash', async (runId, cron, timezone, message) => {
  await expect(schedule(runId, cron, timezone)).rejects.toThrow(message);
});
