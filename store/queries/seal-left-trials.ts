import { and, eq, inArray, isNotNull, isNull, ne, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, groups, trials } from '../schema.ts';

/** Of a run that is over nobody tries a training trial again: what ended its last attempt becomes its outcome. Evaluations may go on. */
export async function sealLeftTrials(db: Database, runId: string): Promise<void> {
  await db
    .update(trials)
    .set({ outcome: sql`${attempts.outcome}`, status: 'completed', sealedAt: new Date() })
    .from(attempts)
    .where(
      and(
        eq(trials.runId, runId),
        ne(trials.status, 'deleted'),
        isNull(trials.outcome),
        eq(attempts.trialId, trials.id),
        eq(attempts.attempt, trials.attempt),
        isNotNull(attempts.outcome),
        inArray(trials.groupId, db.select({ id: groups.id }).from(groups).where(and(eq(groups.runId, runId), eq(groups.kind, 'train')))),
      ),
    );
}
