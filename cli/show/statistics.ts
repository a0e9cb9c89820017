export type RewardStatistics = { mean: number; median: number; std: number; count: number };

/** Population statistics, as training loggers name them; null where nothing was rewarded. */
export function statisticsOf(values: number[]): RewardStatistics | null {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  const middle = (sorted.length - 1) / 2;
  const median = ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle)] ?? 0)) / 2;
  return { mean, median, std, count: values.length };
}

/** How often each value occurs. */
export function tally<T extends string>(values: T[]): Partial<Record<T, number>> {
  const counts: Partial<Record<T, number>> = {};
  for (const value of values) counts[value] = (counts[value] ?? 0) + 1;
  return counts;
}
