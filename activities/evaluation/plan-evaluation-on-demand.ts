import { and, eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { groups } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { readRun } from '../run/read-run.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { listTasks } from '../tasks/list-tasks.ts';

export type EvaluationRequest = {
  runId: string;
  /** Absent: the version of the engines when the run is under way, otherwise the newest one. */
  version?: number;
  /** Absent: the run file's `evaluation.tasks`. */
  tasks?: string[];
  /** The trials of each task; absent: the run file's `evaluation.samples`. */
  samples?: number;
};

export type PlannedEvaluation = { /** `eval@{version}.{n}` */ id: string; plans: GroupPlan[]; deadlineSeconds: number };

/** Plans the groups of an evaluation on demand. It is the n-th of its version, beside the run's own evaluation (`eval@{version}`). */
export const planEvaluationOnDemand =
  (deps: Deps) =>
  (input: EvaluationRequest & { version: number }): Promise<PlannedEvaluation> =>
    nonRetryable(async () => {
      const { runId, version: policyVersion } = input;
      const { evaluation, agents, deadlines, sandbox } = await readRun(deps.db, runId);
      const sources = input.tasks ?? evaluation.tasks;
      if (sources.length === 0)
        throw new TrialgateError('bad_input', `run ${runId} names no held-out tasks: say which ones (--tasks FOLDER)`);
      const size = input.samples ?? evaluation.samples;
      if (!Number.isInteger(size) || size < 1)
        throw new TrialgateError('bad_input', `samples: expected a number such as 16, found ${JSON.stringify(size)}`);
      const n = await nextOf(deps, runId, policyVersion);
      const plans = (await listTasks(deps.db, runId, { tasks: sources, agents, sandbox })).map(
        ({ task, agent }, ordinal) => ({
          id: `${runId}/eval@${policyVersion}.${n}/${ordinal}`,
          trialPrefix: `${runId}-eval.${policyVersion}.${n}-${ordinal}`,
          runId,
          kind: 'eval' as const,
          iteration: null,
          take: null,
          ordinal,
          size,
          task,
          agent,
          policyVersion,
        }),
      );
      return { id: `eval@${policyVersion}.${n}`, plans, deadlineSeconds: deadlines.iteration };
    });

async function nextOf({ db }: Deps, runId: string, policyVersion: number): Promise<number> {
  const here = and(eq(groups.runId, runId), eq(groups.kind, 'eval'), eq(groups.policyVersion, policyVersion));
  const rows = await db.select({ id: groups.id }).from(groups).where(here);
  return 1 + Math.max(0, ...rows.map(({ id }) => Number(/\.(\d+)\/\d+$/.exec(id.slice(runId.length))?.[1] ?? 0)));
}
