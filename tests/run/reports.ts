import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';

export type Counts = { passed: number; failed: number; skipped: number };
/** A test of a report. `failure` says why it failed and is absent where it did not. */
export type ReportedTest = { name: string; file: string; seconds: number; failure?: string };
/** The counts and the tests in a suite's report. */
export type Outcome = { counts: Counts; tests: ReportedTest[] };

const vitestReport = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string(),
      assertionResults: z.array(
        z.object({
          fullName: z.string(),
          duration: z.number().nullish(),
          status: z.string(),
          failureMessages: z.array(z.string()),
        }),
      ),
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
  const tests = testResults.flatMap(({ name, status, message, assertionResults }) => {
    const file = path.relative(REPOSITORY, name);
    const own: ReportedTest[] = assertionResults.map(({ fullName, duration, status: ended, failureMessages }) => ({
      name: fullName.trim(),
      file,
      seconds: (duration ?? 0) / 1000,
      ...(ended === 'failed' && { failure: failureMessages.join('\n') }),
    }));
    // A file that cannot be loaded or cleaned up fails although none of its tests does.
    const isWithoutCause = status === 'failed' && !assertionResults.some((each) => each.status === 'failed');
    return isWithoutCause ? [...own, { name: 'the file', file, seconds: 0, failure: message }] : own;
  });
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
  const tests = [...xml.matchAll(/(<testcase [^>]*>)(<(?:failure|error) [^>]*>)?/g)].map(
    ([, test = '', fault]): ReportedTest => ({
      name: attribute(test, 'name') ?? '',
      file: `${(attribute(test, 'classname') ?? '').replaceAll('.', '/')}.py`,
      seconds: Number(attribute(test, 'time') ?? 0),
      ...(fault && { failure: unescaped(attribute(fault, 'message') ?? '') }),
    }),
  );
  return { counts, tests };
}

/** Counts a suite without a report as one test. */
export const readExitCode = (_report: string, exitCode: number): Outcome => ({
  counts: exitCode === 0 ? { passed: 1, failed: 0, skipped: 0 } : { passed: 0, failed: 1, skipped: 0 },
  tests: [],
});

const attribute = (element: string, name: string): string | undefined =>
  new RegExp(` ${name}="([^"]*)"`).exec(element)?.[1];

const ENTITIES: Record<string, string> = { '#10': '\n', '#9': '\t', quot: '"', lt: '<', gt: '>', amp: '&' };
const unescaped = (text: string): string =>
  text.replaceAll(/&([#\w]+);/g, (all, name: string) => ENTITIES[name] ?? all);

function read(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
