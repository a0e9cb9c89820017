import { and, eq } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { EXTERNAL_AGENT } from '../../core/run-config/rollouts.ts';
import { groups, trials } from '../schema.ts';
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
 * Ends a trial of a claimed group with the rewards that the program reports. The same report again changes nothing.
 * @throws TrialgateError `not_found` for a trial that is not one of the run's claimed ones, `attempt_closed` for one that has ended
 * otherwise: at its deadline, with its run, or by another report
 */
export async function reportTrial(db: Database, report: TrialReport): Promise<TrialRow> {
  const { runId, trialId, attempt, rewards, reason } = report;
  const [found] = await db
    .select({ agent: trials.agent, exhausted: trials.exhausted, claimedAt: groups.claimedAt })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(trials.id, trialId), eq(trials.runId, runId)));
  if (found?.agent !== EXTERNAL_AGENT || found.claimedAt === null)
    throw new TrialgateError('not_found', `run ${runId} has no claimed trial ${trialId}`);
  const seconds = { agent: (Date.now() - found.claimedAt.getTime()) / 1000 };
  const sealed = await sealAttempt(db, {
    trialId,
    attempt,
    seconds,
    ...(rewards === null
      ? { outcome: 'cancelled', reason: reason ?? 'the program gave it no reward', final: true }
      : { outcome: found.exhausted ? 'truncated' : 'scored', rewards, reason: found.exhausted ?? undefined }),
  });
  if (sealed.outcome !== null && isSame(sealed.rewards ?? {}, rewards ?? {})) return sealed;
  const how = sealed.rewards ? ` with the rewards ${JSON.stringify(sealed.rewards)}` : '';
  const why = sealed.reason === null ? '' : `: ${sealed.reason}`;
  throw new TrialgateError(
    'attempt_closed',
    `trial ${trialId} has ended as ${sealed.outcome ?? 'cancelled'}${how}${why}. This report changes nothing`,
  );
}

const isSame = (a: Record<string, number>, b: Record<string, number>): boolean =>
  Object.keys(a).length === Object.keys(b).length && Object.entries(a).every(([name, value]) => b[name] === value);
