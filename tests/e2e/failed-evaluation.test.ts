import { like } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { runs, trials } from '../../store/schema.ts';
import { callRecord } from '../support/scenarios/call-record.ts';
import { until } from '../support/harness/until.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { startRun } from '../../cli/run/start-run.ts';

const environment = useTemporal();
const store = useDatabase();

/** All trials of held-out tasks but one fail until `isRepaired`. */
class Broken extends FakeWorld {
  isRepaired = false;

  constructor() {
    super();
    this.runAgent = async ({ trialId, attempt }) => {
      this.log.push(`agent ${trialId}`);
      if (!this.isRepaired && trialId.includes('-eval.') && !trialId.endsWith('-0-0'))
        return { outcome: 'infra_error', reason: 'no space left on device', seconds: {} };
      await recordCalls(store.db, [callRecord({ trialId, attempt, choice: { policyVersion: 0 } })]);
      return { outcome: null, seconds: {} };
    };
  }

  async during(
    evaluation: Record<string, unknown>,
    body: (config: ReturnType<typeof runConfig.parse>) => Promise<void>,
  ): Promise<void> {
    await using folder = await temporaryHome();
    const tasks = await Promise.all(
      ['a', 'b'].map(async (name) => (await taskWith(`${folder.home}/${name}`, 'true')).folder),
    );
    const records = {
      ...recordsOver(this, { db: store.db, temporal: environment.client, home: folder.home }),
      borrowPool: async () => ({ version: 0, published: true }),
      returnPool: async () => {},
    };
    const config = runConfig.parse({
      model: 'm',
      tasks,
      iterations: 1,
      groups_per_iteration: 1,
      group_size: 2,
      max_attempts: 1,
      evaluation: { tasks, samples: 2, ...evaluation },
    });
    const activities = {
      trialgate: records,
      sandboxes: { openTrial: records.openTrial },
      host: this.host(),
      gpu: this.gpu(),
    };
    await withWorkers(environment, activities, () => body(config));
  }
}

const WHY = "3 of the evaluation's 4 trials failed: no space left on device";
const outcomes = async (prefix: string) =>
  (
    await store.db
      .select()
      .from(trials)
      .where(like(trials.id, `${prefix}-%`))
  ).map(({ outcome }) => outcome);

test.each([
  ['before', 0, { before: true, after: false }],
  ['after', 1, { before: false, after: true }],
])(
  'an evaluation %s the iterations blocks the run when its trials fail, and after a resume only its failed trials run again',
  async (when, version, evaluation) => {
    const world = new Broken();
    const id = `run-${when}`;
    await world.during(evaluation, async (config) => {
      const run = await startRun(environment.client, id, config);
      const status = () => run.query<RunStatusReport>('status');
      await until(async () => (await status()).phase === 'blocked');
      expect((await status()).reason).toBe(WHY);
      expect(world.count('train 1')).toBe(version);
      world.isRepaired = true;
      await run.executeUpdate('resume');
      await run.result();
    });
    expect(await outcomes(`${id}-eval.${version}`)).toEqual(['scored', 'scored', 'scored', 'scored']);
    expect(world.count(`agent ${id}-eval.${version}-0-0`)).toBe(1);
  },
);

test('an evaluation on demand whose trials fail ends with the cause, and the next request evaluates anew', async () => {
  const world = new Broken();
  await world.during({}, async (config) => {
    await store.db.insert(runs).values({ id: 'asked', config });
    const evaluate = () =>
      environment.client.workflow.execute('evaluateRun', {
        workflowId: 'asked/evaluate',
        taskQueue: TASK_QUEUE,
        args: [{ runId: 'asked' }],
      });
    await expect(evaluate()).rejects.toMatchObject({
      cause: { cause: { cause: { type: 'most_trials_failed', message: WHY } } },
    });
    world.isRepaired = true;
    expect(await evaluate()).toEqual({ runId: 'asked', id: 'eval@0.2', version: 0 });
  });
  expect(await outcomes('asked-eval.0.2')).toEqual(['scored', 'scored', 'scored', 'scored']);
});
