import type { groups } from '../../store/schema.ts';
import type { GroupPlan } from './group-plan.ts';

/** Returns the input of a group's workflow from the group's row. */
export const planOf = (row: typeof groups.$inferSelect): GroupPlan => {
  const { id, runId, kind, iteration, take, ordinal, size, task, agent, policyVersion, openedAt } = row;
  return { id, trialPrefix: id.replace(/[/]/g, '-').replace('@', '.'), runId, kind, iteration, take, ordinal, size, task, agent, policyVersion, openedAt: openedAt.toISOString() };
};
