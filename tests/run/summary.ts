import { stripVTControlCharacters } from 'node:util';
import type { Counts, ReportedTest } from './reports.ts';
import { TIERS, type Tier } from './tiers.ts';

export type SuiteResult = { tier: Tier; suite: string; counts: Counts; seconds: number };

const SLOWEST = 10;
const LINES_OF_A_FAILURE = 15;

/** Returns `N passed, N failed[, N skipped]`. */
export const countsLine = ({ passed, failed, skipped }: Counts): string =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;

export const sumOf = (all: readonly Counts[]): Counts =>
  all.reduce(
    (sum, each) => ({
      passed: sum.passed + each.passed,
      failed: sum.failed + each.failed,
      skipped: sum.skipped + each.skipped,
    }),
    { passed: 0, failed: 0, skipped: 0 },
  );

/** Returns the counts of each suite, tier by tier. Suites run side by side, so their seconds have no sum. */
export function tiersTable(results: readonly SuiteResult[]): string {
  const sorted = results.toSorted((a, b) => TIERS.indexOf(a.tier) - TIERS.indexOf(b.tier));
  const rows = sorted.map(({ tier, suite, counts, seconds }) => [
    tier,
    suite,
    ...[counts.passed, counts.failed, counts.skipped, Math.round(seconds)].map(String),
  ]);
  return columns([['tier', 'suite', 'passed', 'failed', 'skipped', 'seconds'], ...rows], 2);
}

/** Returns the slowest tests, the slowest first. */
export function slowestTable(tests: readonly ReportedTest[]): string {
  const slowest = tests.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  return slowest.map(({ seconds, file, name }) => `${seconds.toFixed(1).padStart(7)} s  ${file}: ${name}`).join('\n');
}

/** Returns the tests that failed, each with the first lines of its message: a log that is cut keeps its end. */
export function failedList(tests: readonly ReportedTest[]): string {
  return tests
    .filter(({ failure }) => failure !== undefined)
    .map(({ file, name, failure = '' }) => {
      const lines = stripVTControlCharacters(failure).split('\n').slice(0, LINES_OF_A_FAILURE);
      return [`  ${file}: ${name}`, ...lines.map((line) => `    ${line}`)].join('\n');
    })
    .join('\n');
}

/** Aligns the first `texts` columns to the left and the others, which have numbers, to the right. */
function columns(rows: readonly string[][], texts: number): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const pad = (cell: string, column: number) =>
    column < texts ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  return rows.map((row) => row.map(pad).join('  ').trimEnd()).join('\n');
}
