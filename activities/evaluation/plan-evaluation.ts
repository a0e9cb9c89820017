import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { readRun } from '../run/read-run.ts';
import { listTasks } from '../tasks/list-tasks.ts';

/** Plans a group for each held-out task, with `evaluation.samples` trials from one policy version. */
export const planEvaluation =
  (deps: Deps) =>
  async (input: { runId: string; policyVersion: number }): Promise<GroupPlan[]> => {
    const config = await readRun(deps.db, input.runId);
    const tasks = await listTasks(deps.db, input.runId, { ...config, tasks: config.evaluation.tasks });
    return tasks.map(({ task, agent }, ordinal) => ({
      ...input,
      kind: 'eval',
      iteration: null,
      take: null,
      id: `${input.runId}/eval@${input.policyVersion}/${ordinal}`,
      trialPrefix: `${input.runId}-eval.${input.policyVersion}-${ordinal}`,
      ordinal,
      size: config.evaluation.samples,
      task,
      agent,
    }));
  };
