import type { groups } from '../../store/schema.ts';

/** The input of a group's workflow. */
export type GroupPlan = {
  /** The id of its workflow and of its row. */
  id: string;
  trialPrefix: string;
  runId: string;
  kind: 'train' | 'eval';
  iteration: number | null;
  take: number | null;
  ordinal: number;
  /** The number of trials: GRPO's G. */
  size: number;
  /** The task's folder. */
  task: string;
  agent: string;
  policyVersion: number;
  /** In ISO 8601; absent for a new group. */
  openedAt?: string;
};

/** Returns the input of a group's workflow from the group's row. */
export const planOf = (row: typeof groups.$inferSelect): GroupPlan => {
  const { id, runId, kind, iteration, take, ordinal, size, task, agent, policyVersion, openedAt } = row;
  return {
    id,
    trialPrefix: id.replace(/[/]/g, '-').replace('@', '.'),
    runId,
    kind,
    iteration,
    take,
    ordinal,
    size,
    task,
    agent,
    policyVersion,
    openedAt: openedAt.toISOString(),
  };
};
