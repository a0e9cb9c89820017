import { ApplicationFailure } from '@temporalio/common';
import type { PlannedEvaluation } from '../../../activities/plan-evaluation-on-demand.ts';
import { TASK_QUEUE } from '../../../cli/task-queue.ts';
import { FakeWorld } from '../../fake-activities.ts';
import { hold, until, type Stage } from '../stage.ts';

const plan = ({ runId, version }: { runId: string; version: number }): PlannedEvaluation => {
  const group = { runId, kind: 'eval' as const, iteration: null, take: null, ordinal: 0, size: 2, task: 't', agent: 'a', policyVersion: version };
  return { id: `eval@${version}.1`, plans: [{ ...group, id: `${runId}/eval@${version}.1/0`, trialPrefix: `${runId}-eval.${version}.1-0` }], deadlineSeconds: 600 };
};

/** Evaluations on demand: of a version that the engines have not, one that is refused, one that is cancelled. */
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
    await until('its agents run', () => held.size === 2);
    await last.cancel();
    await last.result().catch(() => {});
  };
  await stage.inMemory(world, body, own);
}

/** A batch that is trained on again; one whose train step fails. */
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
