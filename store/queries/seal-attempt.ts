import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { attempts, trials, type Evidence, type Outcome } from '../schema.ts';
import { toStorableText } from '../../core/json.ts';
import { lockTrial, type TrialRow } from './transaction.ts';

export type SealInput = {
  trialId: string;
  /** Absent: the current attempt. */
  attempt?: number;
  outcome: Outcome;
  /** Named rewards. */
  rewards?: Record<string, number>;
  /** The parts of `rewards` that each turn earned, for the names that the verifier gave turn by turn. */
  turnRewards?: Record<string, number[]>;
  reason?: string;
  /** The evidence for an `infra_error`. */
  evidence?: Evidence;
  /** Seconds by phase. */
  seconds?: Record<string, number>;
  host?: string;
  /** True when a `cancelled` trial is not tried again. */
  final?: boolean;
};

/** Outcomes that say nothing about the trial itself. It is tried again when the run goes on. */
const UNFINISHED: Outcome[] = ['infra_error', 'cancelled'];

/**
 * Ends an attempt, and with it the trial, unless the outcome is `infra_error` or `cancelled`: then only the attempt ends, its late calls
 * are refused, and the trial waits for its next attempt. A second seal changes nothing and returns the first one's result.
 * @throws TrialgateError `attempt_closed` for any attempt but the current one
 */
export async function sealAttempt(db: Database, input: SealInput): Promise<TrialRow> {
  const { trialId, outcome, evidence, seconds, host, final = false } = input;
  // Agents and verifiers choose the characters of both, and the activity would retry a value that PostgreSQL refuses for an hour.
  const reason = input.reason === undefined ? undefined : toStorableText(input.reason);
  const rewards = storable(input.rewards);
  const turnRewards = storable(input.turnRewards);
  return db.transaction(async (tx) => {
    const trial = await lockTrial(tx, trialId);
    if (!trial) throw new TrialgateError('not_found', `trial ${trialId} is unknown`);
    const attempt = input.attempt ?? trial.attempt;
    if (attempt !== trial.attempt || trial.status === 'deleted') {
      const state = trial.status === 'deleted' ? 'is deleted' : `is at attempt ${trial.attempt}`;
      throw new TrialgateError('attempt_closed', `trial ${trialId} ${state}: attempt ${attempt} cannot be sealed`);
    }
    const thisAttempt = and(eq(attempts.trialId, trialId), eq(attempts.attempt, attempt));
    const [row] = await tx.select().from(attempts).where(thisAttempt);
    if (trial.outcome || (row?.endedAt && !final)) return trial;
    const now = new Date();
    // Between two attempts only the trial ends: its last attempt has ended already.
    if (!row?.endedAt)
      await tx.update(attempts).set({ outcome, reason, evidence, seconds, host, endedAt: now }).where(thisAttempt);
    const ended = { status: 'completed' as const, reason: reason ?? null, completedAt: trial.completedAt ?? now };
    const sealed =
      UNFINISHED.includes(outcome) && !final ? ended : { ...ended, outcome, rewards, turnRewards, sealedAt: now };
    const [after] = await tx.update(trials).set(sealed).where(eq(trials.id, trialId)).returning();
    return after ?? trial;
  });
}

const storable = <T>(named: Record<string, T> | undefined): Record<string, T> | undefined =>
  named && Object.fromEntries(Object.entries(named).map(([name, value]) => [toStorableText(name), value]));
