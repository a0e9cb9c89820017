import { ApplicationFailure } from '@temporalio/common';
import type { PlannedEvaluation } from '../../../activities/evaluation/plan-evaluation-on-demand.ts';
import { TASK_QUEUE } from '../../../core/task-queues.ts';
import type { RunStatusReport } from '../../../workflows/messages.ts';
import { FakeWorld } from '../../support/fakes/fake-activities.ts';
import { until } from '../../support/harness/until.ts';
import { hold, type Stage } from '../stage.ts';

const plan = ({ runId, version }: { runId: string; version: number }): PlannedEvaluation => {
  const group = { runId, kind: 'eval' as const, iteration: null, take: null, ordinal: 0, size: 2, task: 't', agent: 'a', policyVersion: version };
  return { id: `eval@${version}.1`, plans: [{ ...group, id: `${runId}/eval@${version}.1/0`, trialPrefix: `${runId}-eval.${version}.1-0` }], deadlineSeconds: 600 };
};

/** Evaluations on demand: one of a version that the engines do not have, one that is refused, one that is cancelled. */
export async function evaluated(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const own = {
    borrowPool: async ({ version = 0 }: { version?: number }) => {
      if (version === 9) throw ApplicationFailure.create({ type: 'bad_input', message: 'the engines have version 4', nonRetryable: true });
      return { version, published: false };
    },
    planEvaluationOnDemand: async (input: { runId: string; version: number }) => plan(input),
    returnPool: async () => {},
  };
  const evaluate = (runId: string, version: number) =>
    stage.client.workflow.start('evaluateRun', { workflowId: `${runId}/evaluate`, taskQueue: TASK_QUEUE, args: [{ runId, version }] });
  const body = async () => {
    await (await evaluate('evaluated', 3)).result();
    await (await evaluate('unknown', 9)).result().catch(() => {});
    const { held } = hold(world, /./);
    const last = await evaluate('unwanted', 1);
    await until(() => held.size === 2);
    await last.cancel();
    await last.result().catch(() => {});
  };
  await stage.inMemory(world, body, own);
}

/** A publication that waits until an evaluation on demand has ended. */
export async function waited(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  world.config = stage.config({ iterations: 1, evaluation: { before: false, after: false } });
  const own = { borrowPool: async () => ({ version: 0, published: true }), planEvaluationOnDemand: async (input: { runId: string; version: number }) => plan(input), returnPool: async () => {} };
  const train = world.trainStep;
  let free = (): void => {};
  world.trainStep = async () => {
    const evaluating = hold(world, /./);
    free = evaluating.free;
    await stage.client.workflow.start('evaluateRun', { workflowId: 'waited/evaluate', taskQueue: TASK_QUEUE, args: [{ runId: 'waited', version: 0 }] });
    await until(() => evaluating.held.size === 2);
    return train();
  };
  await stage.inMemory(world, async () => {
    const run = await stage.start('waited');
    await until(async () => (await run.query<RunStatusReport>('status')).waits_for?.startsWith('its turn') === true);
    free();
    await stage.ended('waited');
  }, own);
}

/**
 * A change during the last iteration asks for an evaluation after it, which waits for a pause to end. One of its trials gets an extension
 * beyond the evaluation's deadline.
 */
export async function changedLast(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  world.config = stage.config({ evaluation: { before: false, after: false } });
  const sampling = hold(world, /./);
  await stage.inMemory(world, async () => {
    const run = await stage.start('changed');
    await until(() => sampling.held.size === 4);
    await run.executeUpdate('configure', { args: [{ evaluation: { tasks: ['held-out'], before: false } }] });
    const evaluating = hold(world, /./);
    const train = world.trainStep;
    world.trainStep = async () => {
      await run.executeUpdate('pause', { args: [{ seconds: 2 }] });
      return train();
    };
    sampling.free();
    await until(() => evaluating.held.size === 4);
    await stage.client.workflow.getHandle('changed/eval@1/0').signal('extend', { trialIndex: 0, seconds: 10_800 });
    await until(() => world.log.some((entry) => entry.startsWith('extend changed/eval@1/0')));
    evaluating.free();
    await stage.ended('changed');
  });
}

/** A rescored batch, and one whose train step fails. */
export async function rescored(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const rescore = (runId: string) =>
    stage.client.workflow.start('rescoreIteration', { workflowId: runId, taskQueue: TASK_QUEUE, args: [{ runId, trainSeconds: 600 }] });
  await stage.inMemory(world, async () => {
    await (await rescore('rescored')).result();
    world.trainStep = async () => {
      throw ApplicationFailure.create({ message: 'the disk is full', nonRetryable: true });
    };
    await (await rescore('rescored-badly')).result().catch(() => {});
  });
}
