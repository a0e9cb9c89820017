import type { Deps } from './deps.ts';
import { readRun } from './read-run.ts';
import { shuffle } from './shuffle.ts';
import { listTasks } from './tasks/list-tasks.ts';
import type { GroupPlan } from './group-plan.ts';

/** The tasks of one iteration: an endless walk over seeded shuffles of the task set, so that none is starved. */
export const planGroups =
  (deps: Deps) =>
  async (input: { runId: string; iteration: number; take: number; policyVersion: number }): Promise<GroupPlan[]> => {
    const config = await readRun(deps.db, input.runId);
    const tasks = await listTasks(config.tasks);
    return Array.from({ length: config.groups_per_iteration }, (_, ordinal) => {
      const position = input.iteration * config.groups_per_iteration + ordinal;
      const epoch = shuffle(tasks, config.seed + Math.floor(position / tasks.length));
      return {
        ...input,
        kind: 'train',
        id: `${input.runId}/${input.iteration}.${input.take}/${ordinal}`,
        trialPrefix: `${input.runId}-${input.iteration}.${input.take}-${ordinal}`,
        ordinal,
        size: config.group_size,
        task: pick(epoch, position),
        agent: pick(config.agents, position),
      };
    });
  };

/** The held-out tasks, each sampled `evaluation.samples` times from one policy version. */
export const planEvaluation =
  (deps: Deps) =>
  async (input: { runId: string; policyVersion: number }): Promise<GroupPlan[]> => {
    const config = await readRun(deps.db, input.runId);
    const tasks = await listTasks(config.evaluation.tasks);
    return tasks.map((task, ordinal) => ({
      ...input,
      kind: 'eval',
      iteration: null,
      take: null,
      id: `${input.runId}/eval@${input.policyVersion}/${ordinal}`,
      trialPrefix: `${input.runId}-eval.${input.policyVersion}-${ordinal}`,
      ordinal,
      size: config.evaluation.samples,
      task,
      agent: pick(config.agents, ordinal),
    }));
  };

const pick = (from: string[], position: number): string => from[position % from.length] ?? '';
