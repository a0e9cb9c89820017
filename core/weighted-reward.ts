/** Returns the weighted sum of named rewards. A name without a weight counts 1 (TRL's `reward_weights`). */
export function weightedReward(rewards: Record<string, number>, weights: Record<string, number>): number {
  return Object.entries(rewards).reduce((sum, [name, value]) => sum + value * (weights[name] ?? 1), 0);
}
