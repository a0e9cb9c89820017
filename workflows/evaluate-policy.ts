import { getExternalWorkflowHandle } from '@temporalio/workflow';
import { store } from './activities.ts';
import { phaseSignal } from './messages.ts';
import { runGroups } from './run-groups.ts';

export type EvaluationInput = {
  runId: string;
  policyVersion: number;
  deadlineSeconds: number;
  /** The deadline of each group. */ groupSeconds?: number;
};

/** Samples the held-out tasks from one policy version. Nothing trains on its groups. */
export async function evaluatePolicy({
  runId,
  policyVersion,
  deadlineSeconds,
  groupSeconds,
}: EvaluationInput): Promise<void> {
  const plans = await store.planEvaluation({ runId, policyVersion });
  const begun = plans.map(({ id, task, size }) => ({ id, task, size }));
  await getExternalWorkflowHandle(runId).signal(phaseSignal, {
    phase: 'evaluation',
    begun,
    seconds: Math.min(deadlineSeconds, groupSeconds ?? deadlineSeconds),
  });
  await runGroups(runId, plans, deadlineSeconds);
}
