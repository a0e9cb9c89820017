/** The largest number of float32, in which the trainer computes. */
export const MAX_REWARD = 3.4028234663852886e38;

/**
 * Returns the weighted sum of named rewards. A name without a weight counts 1 (TRL's `reward_weights`). The trainer must compute the same
 * (`gpu-workers/trialgate_gpu/advantages.py`): the tests of both read `gpu-workers/trialgate_gpu/weighted_rewards.json`.
 */
export function weightedReward(rewards: Record<string, number>, weights: Record<string, number>): number {
  return Object.entries(rewards).reduce((sum, [name, value]) => sum + value * (weights[name] ?? 1), 0);
}
