import type { Database } from '../../store/database.ts';
import { judgeWork } from '../sandbox/judge-work.ts';
import type { Verdict, Verification } from '../sandbox/verify.ts';
import { recordOutput, type Output } from '../../store/queries/outputs.ts';

/** Keeps what a program of a trial printed. A trial does not fail because its output cannot be kept. */
export async function keepOutput(
  db: Database,
  { trialId, attempt, program, stdout, stderr }: Output & { trialId: string },
): Promise<void> {
  await recordOutput(db, { trialId, attempt, program, stdout, stderr }).catch((error: unknown) => {
    // Drizzle's own message has the whole output.
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    console.warn(`WARNING: the output of the ${program} of trial ${trialId} could not be kept: ${String(cause)}`);
  });
}

/**
 * Judges the agent's work, and keeps what the tests printed when they last ran on it.
 * @throws VerifierError and SandboxError as `judgeWork` does
 */
export async function judgeAndKeepOutput(
  db: Database,
  { trialId, attempt }: { trialId: string; attempt: number },
  verification: Omit<Verification, 'onOutput'>,
): Promise<Verdict> {
  const runs: Pick<Output, 'stdout' | 'stderr'>[] = [];
  try {
    return await judgeWork({ ...verification, onOutput: (output) => runs.push(output) });
  } finally {
    const last = runs.at(-1);
    if (last) await keepOutput(db, { trialId, attempt, program: 'verifier', ...last });
  }
}
