import { stripVTControlCharacters } from 'node:util';
import { countsOf, type Counts, type TestOutcome } from './outcome.ts';
import { MOST_FLAKY } from './repeat.ts';
import { ALL_AREAS, type Area } from './suites.ts';

export type SuiteResult = { area: Area; suite: string; tests: TestOutcome[]; seconds: number };
/** A test that failed and then passed alone, with its first failure. */
export type Flaky = { file: string; name: string; failure: string };
/** What a run has to report. `refused` says why failures were not repeated, `left` which processes tests left behind. */
export type Reported = {
  results: readonly SuiteResult[];
  flaky: readonly Flaky[];
  refused: readonly string[];
  left: readonly string[];
};

const SLOWEST = 10;
/** A failure is printed whole, unless a test printed a book. */
const LINES_OF_A_FAILURE = 80;

/** Returns `N passed, N failed[, N skipped]`. */
export const countsLine = ({ passed, failed, skipped }: Counts): string =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;

/** Returns the line of a file that has ended. */
export function fileLine(suite: string, file: string, { passed, failed, skipped }: Counts, seconds: number): string {
  const tests = failed > 0 ? `${failed} of ${passed + failed} failed` : `${passed} passed`;
  const also = skipped > 0 ? `, ${skipped} skipped` : '';
  return `${suite.padEnd(9)} ${failed > 0 ? '✗' : '✓'} ${file}: ${tests}${also}, ${seconds.toFixed(1)} s`;
}

/** Returns what a run prints at its end, its counts, and whether it passed: a few flaky tests do not fail it. */
export function report({ results, flaky, refused, left }: Reported): { text: string; counts: Counts; isGood: boolean } {
  const tests = results.flatMap((each) => each.tests);
  const counts = countsOf(tests);
  const failed = tests.filter(({ result }) => result === 'failed');
  const sections = [
    suiteTable(results),
    tests.length > 0 && `the slowest tests:\n${slowestTable(tests)}`,
    failed.length > 0 && `the tests that failed:\n${failed.map(failureText).join('\n')}`,
    refused.length > 0 && refused.join('\n'),
    left.length > 0 && `PROCESSES LEFT BEHIND by tests, and ended now:\n${left.map((each) => `  ${each}`).join('\n')}`,
    flaky.length > 0 &&
      `${flaky.length} FLAKY: failed, and passed when run once more alone. Note them in tests/flaky.md with their cause:\n${flaky.map(failureText).join('\n')}`,
    flaky.length > MOST_FLAKY && `more than ${MOST_FLAKY} flaky tests fail the run`,
  ];
  const text = `\n${sections.filter((section) => section !== false).join('\n\n')}`;
  return { text, counts, isGood: counts.failed === 0 && counts.passed > 0 && flaky.length <= MOST_FLAKY };
}

/** Returns the counts of each suite, area by area. Suites run side by side, so their seconds have no sum. */
export function suiteTable(results: readonly SuiteResult[]): string {
  const sorted = results.toSorted((a, b) => ALL_AREAS.indexOf(a.area) - ALL_AREAS.indexOf(b.area));
  const rows = sorted.map(({ area, suite, tests, seconds }) => {
    const { passed, failed, skipped } = countsOf(tests);
    return [area, suite, ...[passed, failed, skipped, Math.round(seconds)].map(String)];
  });
  return columns([['area', 'suite', 'passed', 'failed', 'skipped', 'seconds'], ...rows], 2);
}

/** Returns the slowest tests, the slowest first. */
export function slowestTable(tests: readonly TestOutcome[]): string {
  const slowest = tests.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
  return slowest.map(({ seconds, file, name }) => `${seconds.toFixed(1).padStart(7)} s  ${file}: ${name}`).join('\n');
}

function failureText({ file, name, failure = '' }: Pick<TestOutcome, 'file' | 'name' | 'failure'>): string {
  const lines = stripVTControlCharacters(failure).trimEnd().split('\n');
  const shown = lines.slice(0, LINES_OF_A_FAILURE);
  const more = lines.length - shown.length;
  return [
    `  ${file}: ${name}`,
    ...shown.map((line) => `    ${line}`),
    ...(more > 0 ? [`    … ${more} more lines: see the suite's log`] : []),
  ].join('\n');
}

/** Aligns the first `texts` columns to the left and the others, which have numbers, to the right. */
function columns(rows: readonly string[][], texts: number): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const pad = (cell: string, column: number) =>
    column < texts ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0);
  return rows.map((row) => row.map(pad).join('  ').trimEnd()).join('\n');
}
