import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { EXTERNAL_AGENT } from '../../core/run-config/rollouts.ts';
import { attempts, trials, type Outcome } from '../schema.ts';
import { sealAttempt } from './seal-attempt.ts';
import type { TrialRow } from './transaction.ts';

export type TrialReport = {
  runId: string;
  trialId: string;
  attempt: number;
  /** Null when the program gives no reward. Then the trial is not trained on. */
  rewards: Record<string, number> | null;
  reason?: string;
};

/**
 * Ends a trial of an outside program with the rewards that the program reports. The same report again changes nothing.
 * @throws TrialgateError `not_found` for a trial that is not one of the run's claimed ones, `attempt_closed` for one that has ended
 * otherwise: at its deadline, with its run, or by another report
 */
export async function reportTrial(db: Database, report: TrialReport): Promise<TrialRow> {
  const { runId, trialId, attempt, rewards, reason } = report;
  const [found] = await db
    .select({ agent: trials.agent, exhausted: trials.exhausted, claimedAt: attempts.claimedAt })
    .from(trials)
    .innerJoin(attempts, and(eq(attempts.trialId, trials.id), eq(attempts.attempt, attempt)))
    .where(and(eq(trials.id, trialId), eq(trials.runId, runId)));
  if (found?.agent !== EXTERNAL_AGENT || found.claimedAt === null)
    throw new TrialgateError('not_found', `run ${runId} has no claimed trial ${trialId} with attempt ${attempt}`);
  const outcome = outcomeOf(rewards, found.exhausted);
  const sealed = await sealAttempt(db, {
    trialId,
    attempt,
    outcome,
    rewards: rewards ?? undefined,
    reason: reason ?? found.exhausted ?? undefined,
    seconds: { agent: (Date.now() - found.claimedAt.getTime()) / 1000 },
  });
  if (sealed.outcome === outcome && isSame(sealed.rewards ?? {}, rewards ?? {})) return sealed;
  const ended = sealed.rewards
    ? `with the rewards ${JSON.stringify(sealed.rewards)}`
    : `as ${sealed.outcome ?? 'cancelled'}`;
  throw new TrialgateError('attempt_closed', `trial ${trialId} has ended ${ended}: this report changes nothing`);
}

/** A trial without a reward counts as one whose verifier failed. */
const outcomeOf = (rewards: TrialReport['rewards'], exhausted: string | null): Outcome =>
  rewards === null ? 'verifier_error' : exhausted === null ? 'scored' : 'truncated';

const isSame = (a: Record<string, number>, b: Record<string, number>): boolean =>
  Object.keys(a).length === Object.keys(b).length && Object.entries(a).every(([name, value]) => b[name] === value);
