import { and, eq, inArray, isNotNull, isNull, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { attempts, calls, trials } from '../../store/schema.ts';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { rewardsOf } from '../rollout/rewards-of.ts';
import type { TrialRow } from '../../store/queries/transaction.ts';
import type { BatchContents } from './collect-samples.ts';
import type { Sample } from './sample.ts';

/**
 * Returns the metrics of a batch: what it uses, and what was dropped since the batch before. Side by side they show what a quorum,
 * over-sampling or staleness favors. The means are `*_tokens` for each trial, trained or recorded (a call that was cut has none unless it
 * was streamed), `*_seconds` from the opening of a trial's last attempt to its end, and `*_reward`. `drifted_calls` is the share of calls
 * after a trial's first that continue another one only by their text. `disk_mib_*` is of the trials, used or dropped, whose disk was counted.
 */
export async function batchMetrics(
  db: Database,
  config: RunConfig,
  collected: BatchContents,
): Promise<Record<string, number>> {
  const { samples, stale, staleness } = collected;
  const usedIds = new Set(samples.map(({ trialId }) => trialId));
  const used = collected.trials.filter(({ id }) => usedIds.has(id));
  const left = collected.trials.filter(({ id }) => !usedIds.has(id));
  const continued = await db
    .select({ continuation: calls.continuation })
    .from(calls)
    .innerJoin(trials, and(eq(trials.id, calls.trialId), eq(trials.attempt, calls.attempt)))
    .where(
      and(
        inArray(trials.id, [...usedIds]),
        eq(calls.status, 'completed'),
        isNull(calls.choiceOf),
        isNotNull(calls.continuation),
      ),
    );
  const [disk] = await db
    .select({
      mean: sql<number | null>`avg(${attempts.diskBytes})::float8`,
      max: sql<number | null>`max(${attempts.diskBytes})::float8`,
    })
    .from(attempts)
    .innerJoin(trials, isCurrentAttempt)
    .where(
      inArray(
        trials.id,
        collected.trials.map(({ id }) => id),
      ),
    );
  const drifted = continued.filter(({ continuation }) => continuation === 'drifted').length;
  return {
    groups: new Set(samples.map(({ groupId }) => groupId)).size,
    samples_per_trial: samples.length / Math.max(1, usedIds.size),
    drifted_calls: continued.length === 0 ? 0 : drifted / continued.length,
    stale_samples: stale.length,
    staleness_mean: mean(staleness),
    staleness_max: Math.max(0, ...staleness),
    disk_mib_mean: (disk?.mean ?? 0) / 2 ** 20,
    disk_mib_max: (disk?.max ?? 0) / 2 ** 20,
    used_trials: used.length,
    used_tokens: mean(tokensByTrial(samples)),
    used_seconds: mean(used.flatMap(secondsOf)),
    used_reward: mean(used.map((trial) => rewardOf(trial, config))),
    dropped_trials: left.length,
    dropped_tokens: mean(left.map(({ usedTokens }) => usedTokens)),
    dropped_seconds: mean(left.flatMap(secondsOf)),
    dropped_reward: mean(left.filter(({ rewards }) => rewards !== null).map((trial) => rewardOf(trial, config))),
  };
}

const rewardOf = (trial: TrialRow, config: RunConfig): number =>
  weightedReward(rewardsOf(trial, config) ?? trial.rewards ?? {}, config.reward_weights);

const secondsOf = ({ attemptOpenedAt, sealedAt }: TrialRow): number[] =>
  sealedAt === null ? [] : [(sealedAt.getTime() - attemptOpenedAt.getTime()) / 1000];

function tokensByTrial(samples: readonly Sample[]): number[] {
  const tokens = new Map<string, number>();
  for (const { trialId, lossMask } of samples)
    tokens.set(trialId, (tokens.get(trialId) ?? 0) + lossMask.reduce((sum, bit) => sum + bit, 0));
  return [...tokens.values()];
}

const mean = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
