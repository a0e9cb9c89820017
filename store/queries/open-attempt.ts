import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { attempts, trials, type Budgets, type Sampling } from '../schema.ts';
import { lockTrial, type Transaction, type TrialRow } from './transaction.ts';

export type OpenAttempt = {
  trialId: string;
  /** Absent: the current attempt, or the next one when that has ended as `infra_error`. */
  attempt?: number;
  runId?: string;
  groupId?: string;
  trialIndex?: number;
  task?: string;
  agent?: string;
  sampling?: Sampling;
  budgets?: Budgets;
  metadata?: Record<string, unknown>;
  policyVersion?: number;
  /** The worker that runs its sandbox. */
  host?: string;
};
export type OpenedAttempt = { trialId: string; attempt: number; created: boolean };

/**
 * Opens an attempt and closes the one before it. Opening the current attempt again changes nothing. `byUrl` is for a client that knows
 * only the trial's URL: it gets the next attempt after one that was used, and it cannot open a run's trial.
 * @throws TrialgateError `attempt_closed` for an attempt before the current one, one that has ended, and a sealed trial
 */
export async function openAttempt(db: Database, input: OpenAttempt, { byUrl = false } = {}): Promise<OpenedAttempt> {
  const { trialId, attempt: asked, host, ...described } = input;
  return db.transaction(async (tx) => {
    const [created] = await tx
      .insert(trials)
      .values({ ...described, id: trialId, attempt: asked ?? 1 })
      .onConflictDoNothing()
      .returning();
    if (created) return begin(tx, { trialId, attempt: created.attempt, host });
    const trial = await lockTrial(tx, trialId);
    if (!trial) throw new TrialgateError('not_found', `trial ${trialId} is gone`);
    if (trial.outcome) throw closed(trial, `is sealed as ${trial.outcome}: nothing can be added to it`);
    if (byUrl && trial.runId !== null)
      throw new TrialgateError(
        'unauthorized',
        `trial ${trialId} belongs to run ${trial.runId}: it is opened with its key, not by its URL alone`,
      );
    const ended = await hasEnded(tx, trial);
    const attempt = asked ?? (ended || (byUrl && isUsed(trial)) ? trial.attempt + 1 : trial.attempt);
    if (attempt < trial.attempt) throw closed(trial, `is at attempt ${trial.attempt}: attempt ${attempt} is closed`);
    if (attempt === trial.attempt) {
      if (ended) throw closed(trial, `ended its attempt ${attempt}: open attempt ${attempt + 1}`);
      return { trialId, attempt, created: false };
    }
    await tx
      .update(attempts)
      .set({ endedAt: new Date(), reason: `superseded by attempt ${attempt}` })
      .where(and(eq(attempts.trialId, trialId), eq(attempts.attempt, trial.attempt), isNull(attempts.endedAt)));
    const unused = {
      recorded: 0,
      usedCalls: 0,
      usedTokens: 0,
      usedBytes: 0,
      reserved: null,
      exhausted: null,
      reportedReward: null,
      attemptOpenedAt: sql`now()`,
    };
    const reset = { attempt, status: 'created' as const, completedAt: null, reason: null, ...unused };
    await tx
      .update(trials)
      .set({ ...described, ...reset })
      .where(eq(trials.id, trialId));
    return begin(tx, { trialId, attempt, host });
  });
}

type Begun = { trialId: string; attempt: number; host: string | undefined };

async function begin(tx: Transaction, begun: Begun): Promise<OpenedAttempt> {
  await tx.insert(attempts).values(begun);
  return { trialId: begun.trialId, attempt: begun.attempt, created: true };
}

async function hasEnded(tx: Transaction, trial: TrialRow): Promise<boolean> {
  const [row] = await tx
    .select({ endedAt: attempts.endedAt })
    .from(attempts)
    .where(and(eq(attempts.trialId, trial.id), eq(attempts.attempt, trial.attempt)));
  return trial.status === 'deleted' || (row?.endedAt ?? null) !== null;
}

const isUsed = ({ recorded, status }: TrialRow): boolean => recorded > 0 || status !== 'created';

const closed = (trial: TrialRow, what: string) => new TrialgateError('attempt_closed', `trial ${trial.id} ${what}`);
