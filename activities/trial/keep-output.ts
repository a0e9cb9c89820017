import type { Database } from '../../store/database.ts';
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
