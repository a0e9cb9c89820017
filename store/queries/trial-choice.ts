import { and, eq, gte, lte, or, sql, type SQL } from 'drizzle-orm';
import { groups, trials, type Outcome } from '../schema.ts';
import { shownOutcome } from './shown-outcome.ts';
import { weightedRewardOf } from './weighted-reward.ts';

/** Which of a run's trials are wanted. `open`: it is under way, or waits for its next attempt. */
export type TrialChoice = {
  outcome?: Outcome | 'open';
  agent?: string;
  rewardMin?: number;
  rewardMax?: number;
};

type Run = {
  weights: Record<string, number>;
  /** True when the run has ended: a trial without an outcome is cancelled then. */
  hasEnded: boolean;
};

/** True for a trial without an outcome whose group goes on. */
const isBetweenAttempts = sql`(${trials.outcome} is null and ${trials.status} <> 'deleted'
  and exists (select from ${groups} own where own.id = ${trials.groupId} and own.ended_at is null))`;

/** True for the trials that are wanted; undefined when all are. */
export function isChosen(
  { outcome, agent, rewardMin, rewardMax }: TrialChoice,
  { weights, hasEnded }: Run,
): SQL | undefined {
  return and(
    outcome === undefined
      ? undefined
      : or(
          eq(sql`coalesce(${shownOutcome()}, ${hasEnded ? 'cancelled' : 'open'})`, outcome),
          outcome === 'open' && !hasEnded ? isBetweenAttempts : undefined,
        ),
    agent === undefined ? undefined : eq(trials.agent, agent),
    rewardMin === undefined ? undefined : gte(weightedRewardOf(weights), rewardMin),
    rewardMax === undefined ? undefined : lte(weightedRewardOf(weights), rewardMax),
  );
}

/** True for the groups with a wanted trial; undefined when all are. */
export const hasChosen = (chosen: SQL | undefined): SQL | undefined =>
  chosen && sql`exists (select from ${trials} where ${trials.groupId} = ${sql.identifier('groups')}.id and ${chosen})`;
