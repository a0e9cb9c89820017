import { and, eq, inArray, isNotNull, isNull, or, sql } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { batches, groups, quarantinedTasks, runs, trials } from '../../store/schema.ts';
import { batchOf, isLive, ofTake, type TakeKey } from '../../store/queries/takes.ts';

/** Reopens groups with unfinished trials and ends all quarantines, after a person has repaired the cause. */
export async function reopenUnfinished(tx: Transaction, take: TakeKey): Promise<void> {
  const { runId } = take;
  await tx.delete(quarantinedTasks).where(eq(quarantinedTasks.runId, runId));
  await tx
    .update(runs)
    .set({ resumedAt: sql`now()` })
    .where(eq(runs.id, runId));
  if (await hasBatch(tx, take)) return;
  const finished = sql`(select count(*) from ${trials} as trial where trial.group_id = ${groups.id} and trial.outcome is not null)`;
  const marked = ofTake(batchOf(groups), take);
  const loose = or(marked, sql`not ${isLive(batchOf(groups))}`);
  const again = and(
    eq(groups.runId, runId),
    eq(groups.kind, 'train'),
    isLive(groups),
    isNotNull(groups.endedAt),
    loose,
    or(isNull(groups.dropped), eq(groups.dropped, 'failed')),
    sql`${finished} < ${groups.size}`,
  );
  // A batch that could not be written is chosen again.
  await tx
    .update(trials)
    .set({ batchIteration: null, batchTake: null })
    .where(ofTake(batchOf(trials), take));
  const reopened = await tx
    .update(groups)
    .set({ endedAt: null, dropped: null })
    .where(again)
    .returning({ id: groups.id });
  // An earlier batch may have counted these trials as dropped.
  await tx
    .update(trials)
    .set({ batchIteration: null, batchTake: null })
    .where(
      and(
        inArray(
          trials.groupId,
          reopened.map(({ id }) => id),
        ),
        isNull(trials.outcome),
      ),
    );
  await tx.update(groups).set({ batchIteration: null, batchTake: null }).where(marked);
}

/** Returns true when the take's batch is written. It then stays as it is. */
export async function hasBatch(tx: Transaction, take: TakeKey): Promise<boolean> {
  return (await tx.select({ sha256: batches.sha256 }).from(batches).where(ofTake(batches, take)).limit(1)).length > 0;
}
