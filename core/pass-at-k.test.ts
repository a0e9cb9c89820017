import { expect, test } from 'vitest';
import { passAtK } from './pass-at-k.ts';

/** Returns 1 − C(n − c, k) / C(n, k) from exact binomial coefficients. */
function exact(n: number, c: number, k: number): number {
  const choose = (a: number, b: number): bigint =>
    b > a ? 0n : Array.from({ length: b }).reduce<bigint>((all, _, i) => (all * BigInt(a - i)) / BigInt(i + 1), 1n);
  return 1 - Number((choose(n - c, k) * 10n ** 15n) / choose(n, k)) / 1e15;
}

test('pass@k of a task is the unbiased estimate 1 − C(n − c, k) / C(n, k)', () => {
  for (const [n, c] of [
    [16, 0],
    [16, 1],
    [16, 5],
    [16, 16],
    [5, 2],
    [1, 1],
    [200, 3],
  ] as const) {
    for (const [k, value] of Object.entries(passAtK([{ trials: n, passed: c }])))
      expect(value).toBeCloseTo(exact(n, c, Number(k)), 12);
  }
});

test('pass@k of an evaluation is the mean of its tasks, for each k for which every task has enough trials', () => {
  const found = passAtK([
    { trials: 6, passed: 6 },
    { trials: 8, passed: 0 },
    { trials: 0, passed: 0 },
  ]);
  expect(found).toEqual({ 1: 0.5, 2: 0.5, 4: 0.5, 6: 0.5 });
  expect(passAtK([{ trials: 0, passed: 0 }])).toEqual({});
});
