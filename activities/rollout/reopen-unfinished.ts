import { and, eq, isNotNull, isNull, or, sql } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { batches, groups, quarantinedTasks, runs, trials } from '../../store/schema.ts';
import { isLive } from './live.ts';

/** After a person mended what stood in the way: trials that nobody finished are tried again, and no task is in quarantine any more. */
export async function reopenUnfinished(tx: Transaction, { runId, iteration, take }: { runId: string; iteration: number; take: number }): Promise<void> {
  await tx.delete(quarantinedTasks).where(eq(quarantinedTasks.runId, runId));
  await tx.update(runs).set({ resumedAt: sql`now()` }).where(eq(runs.id, runId));
  if (await hasBatch(tx, { runId, iteration, take })) return;
  const finished = sql`(select count(*) from ${trials} as member where member.group_id = ${groups.id} and member.outcome is not null)`;
  const marked = and(eq(groups.batchIteration, iteration), eq(groups.batchTake, take));
  const loose = or(marked, sql`not ${isLive({ runId: groups.runId, iteration: groups.batchIteration, take: groups.batchTake })}`);
  const again = and(
    eq(groups.runId, runId), eq(groups.kind, 'train'), isLive(groups), isNotNull(groups.endedAt), loose,
    or(isNull(groups.dropped), eq(groups.dropped, 'failed')), sql`${finished} < ${groups.size}`,
  );
  // A batch that could not be made is made anew.
  await tx.update(trials).set({ batchIteration: null, batchTake: null }).where(and(eq(trials.runId, runId), eq(trials.batchIteration, iteration), eq(trials.batchTake, take)));
  await tx.update(groups).set({ endedAt: null, dropped: null }).where(again);
  await tx.update(groups).set({ batchIteration: null, batchTake: null }).where(and(eq(groups.runId, runId), marked));
}

/** What was made of a take stays as it is. */
export async function hasBatch(tx: Transaction, { runId, iteration, take }: { runId: string; iteration: number; take: number }): Promise<boolean> {
  const ofTake = and(eq(batches.runId, runId), eq(batches.iteration, iteration), eq(batches.take, take));
  return (await tx.select({ sha256: batches.sha256 }).from(batches).where(ofTake).limit(1)).length > 0;
}
