import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';

export type Counts = { passed: number; failed: number; skipped: number };
export type TimedTest = { name: string; file: string; seconds: number };
/** The counts and the durations in a suite's report. */
export type Outcome = { counts: Counts; tests: TimedTest[] };

const vitestReport = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      assertionResults: z.array(z.object({ fullName: z.string(), duration: z.number().nullish() })),
    }),
  ),
});

/** Reads a report of vitest. A suite without a report counts as one failure. */
export function readVitest(report: string, exitCode: number): Outcome {
  const parsed = vitestReport.safeParse(JSON.parse(read(report) ?? 'null'));
  if (!parsed.success) return readExitCode(report, 1);
  const { numPassedTests: passed, numFailedTests, numPendingTests, numTodoTests, testResults } = parsed.data;
  const counts = {
    passed,
    failed: Math.max(numFailedTests, exitCode === 0 ? 0 : 1),
    skipped: numPendingTests + numTodoTests,
  };
  const tests = testResults.flatMap(({ name: file, assertionResults }) =>
    assertionResults.map(({ fullName, duration }) => ({
      name: fullName.trim(),
      file: path.relative(REPOSITORY, file),
      seconds: (duration ?? 0) / 1000,
    })),
  );
  return { counts, tests };
}

/** Reads a report of pytest. A suite without a report counts as one failure. */
export function readPytest(report: string, exitCode: number): Outcome {
  const xml = read(report) ?? '';
  const suite = /<testsuite [^>]*>/.exec(xml)?.[0];
  if (!suite) return readExitCode(report, 1);
  const count = (name: string): number => Number(attribute(suite, name) ?? 0);
  const failed = count('failures') + count('errors');
  const skipped = count('skipped');
  const counts = {
    passed: count('tests') - failed - skipped,
    failed: Math.max(failed, exitCode === 0 ? 0 : 1),
    skipped,
  };
  const tests = [...xml.matchAll(/<testcase [^>]*>/g)].map(([test]) => ({
    name: attribute(test, 'name') ?? '',
    file: `${(attribute(test, 'classname') ?? '').replaceAll('.', '/')}.py`,
    seconds: Number(attribute(test, 'time') ?? 0),
  }));
  return { counts, tests };
}

/** Counts a suite without a report as one test. */
export const readExitCode = (_report: string, exitCode: number): Outcome => ({
  counts: exitCode === 0 ? { passed: 1, failed: 0, skipped: 0 } : { passed: 0, failed: 1, skipped: 0 },
  tests: [],
});

const attribute = (element: string, name: string): string | undefined =>
  new RegExp(` ${name}="([^"]*)"`).exec(element)?.[1];

function read(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
