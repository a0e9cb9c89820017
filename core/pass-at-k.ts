export type TaskResult = {
  /** The number of rewarded trials. */
  trials: number;
  /** The number of these trials with a reward of 1 or more. */
  passed: number;
};

/**
 * Returns pass@k by the unbiased estimate of Chen et al. 2021 (arXiv 2107.03374): the mean over tasks of 1 − C(n − c, k) / C(n, k),
 * for k = 1, 2, 4, … and the largest k for which each task has enough trials. Tasks without a rewarded trial are left out.
 */
export function passAtK(tasks: TaskResult[]): Record<string, number> {
  const counted = tasks.filter(({ trials }) => trials > 0);
  if (counted.length === 0) return {};
  const most = Math.min(...counted.map(({ trials }) => trials));
  const powers = Array.from({ length: Math.floor(Math.log2(most)) + 1 }, (_, i) => 2 ** i);
  return Object.fromEntries(
    [...new Set([...powers, most])].map((k) => [
      k,
      counted.reduce((sum, task) => sum + passWithin(task, k), 0) / counted.length,
    ]),
  );
}

/** Returns 1 − C(n − c, k) / C(n, k), computed as a product so that no binomial coefficient overflows. */
function passWithin({ trials, passed }: TaskResult, k: number): number {
  let fail = 1;
  for (let i = trials - passed + 1; i <= trials; i++) fail *= Math.max(0, 1 - k / i);
  return 1 - fail;
}
