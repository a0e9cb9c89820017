import { readFileSync } from 'node:fs';
import { z } from 'zod';

export type Counts = { passed: number; failed: number; skipped: number };

const vitestReport = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
});

/** Returns the counts of a vitest report. A suite without a report counts as one failure. */
export function vitestCounts(report: string, exitCode: number): Counts {
  const parsed = vitestReport.safeParse(JSON.parse(read(report) ?? 'null'));
  if (!parsed.success) return checkCounts(report, 1);
  const { numPassedTests: passed, numFailedTests, numPendingTests, numTodoTests } = parsed.data;
  return { passed, failed: Math.max(numFailedTests, exitCode === 0 ? 0 : 1), skipped: numPendingTests + numTodoTests };
}

export function pytestCounts(report: string, exitCode: number): Counts {
  const suite = /<testsuite [^>]*>/.exec(read(report) ?? '')?.[0];
  if (!suite) return checkCounts(report, 1);
  const count = (name: string): number => Number(new RegExp(`${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const failed = count('failures') + count('errors');
  const skipped = count('skipped');
  return { passed: count('tests') - failed - skipped, failed: Math.max(failed, exitCode === 0 ? 0 : 1), skipped };
}

export const checkCounts = (_report: string, exitCode: number): Counts =>
  exitCode === 0 ? { passed: 1, failed: 0, skipped: 0 } : { passed: 0, failed: 1, skipped: 0 };

function read(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
