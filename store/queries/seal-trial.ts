import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../errors.ts';
import { attempts, trials, type Evidence, type Outcome } from '../schema.ts';
import { toStorableText } from '../json.ts';
import { lockTrial, type Trial } from './transaction.ts';

export type Sealing = {
  trialId: string;
  /** Absent: the current one. */
  attempt?: number;
  outcome: Outcome;
  /** Named rewards between 0 and 1. */
  rewards?: Record<string, number>;
  /** The parts of `rewards` that each turn earned, for the names that the verifier gave turn by turn. */
  turnRewards?: Record<string, number[]>;
  reason?: string;
  /** The evidence for an `infra_error`. */
  evidence?: Evidence;
  /** Seconds by phase. */
  seconds?: Record<string, number>;
  host?: string;
  /** Of a trial that is `cancelled` for good: nobody will try it again. */
  final?: boolean;
};

/** Nothing can be said of the trial itself after these: whoever goes on with the run tries it again. */
const UNFINISHED: Outcome[] = ['infra_error', 'cancelled'];

/**
 * Ends an attempt, and the trial with it, unless the outcome is `infra_error` or `cancelled`: then the attempt alone ends, its
 * late calls are refused, and the trial waits for the next attempt. Sealing twice returns what stands.
 * Throws `attempt_closed` for any attempt but the current one.
 */
export async function sealTrial(db: Database, input: Sealing): Promise<Trial> {
  const { trialId, outcome, evidence, seconds, host, final = false } = input;
  // Agents and verifiers choose the characters of both. The gateway would retry a value that PostgreSQL refuses for an hour.
  const reason = input.reason === undefined ? undefined : toStorableText(input.reason);
  const rewards = storable(input.rewards);
  const turnRewards = storable(input.turnRewards);
  return db.transaction(async (tx) => {
    const trial = await lockTrial(tx, trialId);
    if (!trial) throw new TrialgateError('not_found', `trial ${trialId} is unknown`);
    const attempt = input.attempt ?? trial.attempt;
    if (attempt !== trial.attempt || trial.status === 'deleted') {
      const standing = trial.status === 'deleted' ? 'is deleted' : `is at attempt ${trial.attempt}`;
      throw new TrialgateError('attempt_closed', `trial ${trialId} ${standing}: attempt ${attempt} cannot be sealed`);
    }
    const thisAttempt = and(eq(attempts.trialId, trialId), eq(attempts.attempt, attempt));
    const [row] = await tx.select().from(attempts).where(thisAttempt);
    if (trial.outcome || (row?.endedAt && !final)) return trial;
    const now = new Date();
    // Between two attempts the trial alone ends.
    if (!row?.endedAt) await tx.update(attempts).set({ outcome, reason, evidence, seconds, host, endedAt: now }).where(thisAttempt);
    const ended = { status: 'completed' as const, reason: reason ?? null, completedAt: trial.completedAt ?? now };
    const sealed = UNFINISHED.includes(outcome) && !final ? ended : { ...ended, outcome, rewards, turnRewards, sealedAt: now };
    const [after] = await tx.update(trials).set(sealed).where(eq(trials.id, trialId)).returning();
    return after ?? trial;
  });
}

const storable = <T>(named: Record<string, T> | undefined): Record<string, T> | undefined =>
  named && Object.fromEntries(Object.entries(named).map(([name, value]) => [toStorableText(name), value]));
