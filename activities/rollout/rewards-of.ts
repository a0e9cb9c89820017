import type { Outcome } from '../../store/schema.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

/** A trial's rewards, and for the names that the verifier gave turn by turn, the part of each turn. */
export type TrialRewards = { rewards: Record<string, number>; turnRewards: Record<string, number[]> };

type TrialResult = { outcome: Outcome | null; rewards: Record<string, number> | null };

/**
 * Returns the rewards that a trial is trained with; null when it is not trained on. Only the verifier's numbers count; a run can choose 0
 * for trials that were cut.
 */
export function rewardsOf(
  trial: TrialResult,
  config: Pick<RunConfig, 'truncated' | 'timed_out' | 'agent_error'>,
): Record<string, number> | null {
  if (trial.outcome === 'scored') return trial.rewards;
  if (trial.outcome !== 'truncated' && trial.outcome !== 'timed_out' && trial.outcome !== 'agent_error') return null;
  const treatment = config[trial.outcome];
  if (treatment === 'mask') return null;
  return treatment === 'zero' ? { reward: 0 } : trial.rewards;
}

/** Like `rewardsOf`, with the part of each turn. */
export function trialRewardsOf(
  trial: TrialResult & { turnRewards: Record<string, number[]> | null },
  config: Pick<RunConfig, 'truncated' | 'timed_out' | 'agent_error'>,
): TrialRewards | null {
  const rewards = rewardsOf(trial, config);
  return rewards && { rewards, turnRewards: rewards === trial.rewards ? (trial.turnRewards ?? {}) : {} };
}
