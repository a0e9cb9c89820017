import { beforeEach, expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { runs } from '../../store/schema.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { removeSchedule, scheduleEvaluations } from '../run/schedule-evaluations.ts';
import { removeRun } from './remove-run.ts';

const temporal = useTemporal();
const store = useDatabase();
const remove = (runId: string) => removeRun({ client: temporal.client, db: store.db }, runId);
const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
beforeEach(async () => void (await store.db.delete(runs)));

const start = (workflowId: string) =>
  temporal.client.workflow.start('trainRun', { workflowId, taskQueue: 'nobody', args: [] });

/** The workflows of these tests that Temporal knows, one entry an execution. */
async function histories(): Promise<string[]> {
  const found = [];
  for await (const { workflowId } of temporal.client.workflow.list()) found.push(workflowId);
  return found.toSorted();
}

test('a deleted run leaves no history in Temporal: of none of its executions, groups and evaluations, whereas those of other runs stay', async () => {
  await store.db.insert(runs).values({ id: 'gone', config });
  const own = ['gone', 'gone', 'gone/0.1/0', 'gone/eval@1/0', 'gone/publish'];
  const others = ['gone-too', 'gone-too/0.1/0', 'other/gone/0'];
  for (const workflowId of [...own, ...others]) await (await start(workflowId)).terminate();
  await until(async () => (await histories()).length === own.length + others.length);
  expect(await remove('gone')).toContain('run gone is deleted');
  await until(async () => (await histories()).length <= others.length);
  expect(await histories()).toEqual(others);
});

test('the schedule of a deleted run ends with it', async () => {
  await store.db.insert(runs).values({ id: 'planned', config });
  const connected = { client: temporal.client, db: store.db };
  await scheduleEvaluations(connected, { runId: 'planned' }, { cron: '0 3 * * *' });
  await remove('planned');
  await expect(removeSchedule(temporal.client, 'planned')).rejects.toMatchObject({ code: 'not_found' });
});

test('a run that is under way is not deleted, nor is anything of it', async () => {
  await store.db.insert(runs).values({ id: 'busy', config });
  await (await start('busy/0.1/0')).terminate();
  const group = await start('busy/0.1/1');
  const here = async () => (await histories()).filter((id) => id.startsWith('busy'));
  await until(async () => (await here()).length === 2);
  await expect(remove('busy')).rejects.toThrow('run busy is under way: its workflow busy/0.1/1 has not ended. ');
  expect(await here()).toHaveLength(2);
  expect(await store.db.select().from(runs)).toHaveLength(1);
  await group.terminate();
});

test.each([
  ['held', { status: 'running' as const }, 'held', 'run held is under way. '],
  [
    'stuck',
    { status: 'blocked' as const, reason: 'no reward\nthe details' },
    'stuck',
    'run stuck is blocked and has not ended (no reward). ',
  ],
  ['done', { status: 'completed' as const }, 'done/evaluate', 'run done is being evaluated. '],
])(
  'the refusal to delete the run %s says in which state it is, and the two commands that delete it',
  async (runId, row, workflowId, state) => {
    await store.db.insert(runs).values({ id: runId, config, ...row });
    const running = [await start(workflowId), await start(`${workflowId}/0.1/0`)];
    await until(async () => (await histories()).filter((id) => id.startsWith(runId)).length === 2);
    await expect(remove(runId)).rejects.toMatchObject({
      code: 'bad_input',
      message: `${state}"npx trialgate cancel ${workflowId}" ends it, then "npx trialgate rm ${runId}" deletes the run`,
    });
    for (const each of running) await each.terminate();
  },
);

test('a run that does not exist is not deleted, and the run that was probably meant is named', async () => {
  await store.db.insert(runs).values({ id: 'somebody', config });
  await expect(remove('sombody')).rejects.toMatchObject({
    code: 'not_found',
    message: 'there is no run sombody (did you mean somebody?): "npx trialgate show" lists all runs',
  });
});
