import { and, asc, eq } from 'drizzle-orm';
import { boundedText } from '../../core/bounded-text.ts';
import { toStorableText } from '../../core/json.ts';
import type { Database } from '../database.ts';
import { outputs, type Program } from '../schema.ts';

/** The most characters of one stream that are kept. */
export const MOST_OUTPUT_CHARACTERS = 32 * 1024;

export type Output = { attempt: number; program: Program; stdout: string; stderr: string };

/** Keeps what a program of an attempt printed, within bounds. A second call for the same program replaces the first. */
export async function recordOutput(db: Database, { trialId, ...output }: Output & { trialId: string }): Promise<void> {
  const kept = { stdout: storable(output.stdout), stderr: storable(output.stderr) };
  await db
    .insert(outputs)
    .values({ trialId, ...output, ...kept })
    .onConflictDoUpdate({ target: [outputs.trialId, outputs.attempt, outputs.program], set: kept });
}

/** Returns what the programs of a trial, or of one of its attempts, printed: attempt by attempt, the agent before the verifier. */
export async function readOutputs(db: Database, trialId: string, attempt?: number): Promise<Output[]> {
  return db
    .select({
      attempt: outputs.attempt,
      program: outputs.program,
      stdout: outputs.stdout,
      stderr: outputs.stderr,
    })
    .from(outputs)
    .where(and(eq(outputs.trialId, trialId), attempt === undefined ? undefined : eq(outputs.attempt, attempt)))
    .orderBy(asc(outputs.attempt), asc(outputs.program));
}

/** Programs choose the characters that they print, and PostgreSQL refuses some of them. */
const storable = (text: string): string => boundedText(toStorableText(text), MOST_OUTPUT_CHARACTERS);
