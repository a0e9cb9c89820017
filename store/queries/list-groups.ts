import { and, asc, eq, inArray, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { groups, iterations, trials, type DropReason, type Outcome } from '../schema.ts';
import { shownOutcome } from './shown-outcome.ts';
import { isSameTake } from './takes.ts';
import { hasChosen, isChosen, type TrialChoice } from './trial-choice.ts';
import { weightedRewardOf } from './weighted-reward.ts';

type GroupRow = typeof groups.$inferSelect;
type TrialRow = typeof trials.$inferSelect;
export type GroupFilter = {
  iteration?: number;
  take?: number;
  group?: string;
  dropped?: DropReason;
  evaluation?: string;
  trials?: TrialChoice;
};
export type ListedTrial = Pick<
  TrialRow,
  'id' | 'trialIndex' | 'agent' | 'attempt' | 'status' | 'rewards' | 'reason' | 'usedCalls' | 'usedTokens'
> & {
  /** Null while it is under way, and when its run ended before any attempt of it did. */
  outcome: Outcome | null;
  reward: number | null;
  seconds: number | null;
};
export type ListedGroup = GroupRow & {
  /** The variance of its rewards; null without rewards. */
  variance: number | null;
  /** Of all its trials, also those that are not wanted. */
  mean: number | null;
  /** True when its take was superseded. */
  superseded: boolean;
  trials: ListedTrial[];
};

type Page = { offset: number; limit: number; weights: Record<string, number>; hasEnded: boolean };

/** Returns a page of a run's groups that have wanted trials, with these. The groups whose rewards vary most come first. */
export async function listGroups(
  db: Database,
  runId: string,
  { iteration, take, group, dropped, evaluation, trials: choice = {} }: GroupFilter,
  { offset, limit, weights, hasEnded }: Page,
): Promise<ListedGroup[]> {
  const chosen = isChosen(choice, { weights, hasEnded });
  const ofGroup = sql`from ${trials} where ${trials.groupId} = ${sql.identifier('groups')}.id`;
  const variance = sql<number | null>`(select var_pop(${weightedRewardOf(weights)}) ${ofGroup})`;
  const page = await db
    .select({
      group: groups,
      variance,
      mean: sql<number | null>`(select avg(${weightedRewardOf(weights)}) ${ofGroup})`,
      superseded: sql<boolean>`coalesce(${iterations.status} = 'superseded', false)`,
    })
    .from(groups)
    .leftJoin(iterations, isSameTake(iterations, groups))
    .where(
      and(
        eq(groups.runId, runId),
        iteration === undefined ? undefined : eq(groups.iteration, iteration),
        take === undefined ? undefined : eq(groups.take, take),
        group === undefined ? undefined : eq(groups.id, group),
        dropped === undefined ? undefined : eq(groups.dropped, dropped),
        evaluation === undefined ? undefined : sql`starts_with(${groups.id}, ${`${runId}/${evaluation}/`})`,
        hasChosen(chosen),
      ),
    )
    .orderBy(sql`${variance} desc nulls last`, asc(groups.openedAt), asc(groups.id))
    .offset(offset)
    .limit(limit);
  const ids = page.map(({ group: { id } }) => id);
  if (ids.length === 0) return [];
  const ofGroups = await db
    .select({
      groupId: trials.groupId,
      id: trials.id,
      trialIndex: trials.trialIndex,
      agent: trials.agent,
      attempt: trials.attempt,
      status: trials.status,
      outcome: shownOutcome(),
      rewards: trials.rewards,
      reason: trials.reason,
      usedCalls: trials.usedCalls,
      usedTokens: trials.usedTokens,
      reward: weightedRewardOf(weights),
      seconds: sql<number | null>`extract(epoch from ${trials.sealedAt} - ${trials.attemptOpenedAt})::float8`,
    })
    .from(trials)
    .where(and(inArray(trials.groupId, ids), chosen))
    .orderBy(asc(trials.trialIndex), asc(trials.id));
  const byGroup = Map.groupBy(ofGroups, ({ groupId }) => groupId);
  return page.map(({ group: row, ...found }) => ({ ...row, ...found, trials: byGroup.get(row.id) ?? [] }));
}
