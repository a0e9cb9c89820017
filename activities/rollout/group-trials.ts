import { desc, eq, type SQL } from 'drizzle-orm';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { attempts, groups, trials, type Outcome } from '../../store/schema.ts';

export type GroupTrial = { outcome: Outcome | null; rewards: Record<string, number> | null; reason: string | null };

/** Returns the trials of some groups. A trial that no attempt finished has the outcome of its last attempt. */
export async function readGroupTrials(db: Executor, which: SQL | undefined): Promise<GroupTrial[]> {
  const rows = await db
    .select({ outcome: trials.outcome, rewards: trials.rewards, last: attempts.outcome, reason: attempts.reason })
    .from(groups)
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .leftJoin(attempts, isCurrentAttempt)
    .where(which)
    .orderBy(desc(groups.endedAt), trials.trialIndex);
  return rows.map(({ last, ...row }) => ({ ...row, outcome: row.outcome ?? last }));
}

/** True for a trial that failed through no fault of its agent. */
export const isFailure = ({ outcome }: GroupTrial): boolean =>
  outcome === 'infra_error' || outcome === 'verifier_error';

/** Returns the number of trials of each outcome, the most frequent first: "6 agent_error, 2 timed_out". */
export function countOutcomes(rows: readonly Pick<GroupTrial, 'outcome'>[]): string {
  const byOutcome = Object.entries(Object.groupBy(rows, ({ outcome }) => outcome ?? 'open'));
  const counts = byOutcome.map(([outcome, all]) => ({ outcome, times: all.length }));
  return (
    counts
      .toSorted((a, b) => b.times - a.times)
      .map(({ outcome, times }) => `${times} ${outcome}`)
      .join(', ') || 'none'
  );
}

/** Returns the most frequent reason, where reasons that differ only in numbers count as the same. */
export function commonReason(rows: readonly Pick<GroupTrial, 'outcome' | 'reason'>[]): string {
  const counts = new Map<string, { times: number; reason: string }>();
  for (const { reason, outcome } of rows) {
    const text = reason ?? outcome ?? 'unknown';
    const kind = text.replace(/[0-9a-f]{8,}|\d+/g, '#');
    counts.set(kind, { times: (counts.get(kind)?.times ?? 0) + 1, reason: text });
  }
  return [...counts.values()].toSorted((a, b) => b.times - a.times)[0]?.reason ?? 'unknown';
}
