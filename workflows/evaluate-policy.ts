import { getExternalWorkflowHandle } from '@temporalio/workflow';
import { store } from './activities.ts';
import { phaseSignal } from './messages.ts';
import { runGroups } from './run-groups.ts';

export type EvaluationInput = { runId: string; policyVersion: number; deadlineSeconds: number };

/** Samples the held-out tasks from one policy version. Its groups are never trained on. */
export async function evaluatePolicy({ runId, policyVersion, deadlineSeconds }: EvaluationInput): Promise<void> {
  const plans = await store.planEvaluation({ runId, policyVersion });
  await getExternalWorkflowHandle(runId).signal(phaseSignal, { phase: 'evaluation', groups: plans.length });
  await runGroups(runId, plans, deadlineSeconds);
}
