import { and, inArray, isNotNull, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { attempts, blobs, calls, groups, outputs, refusals, trials } from '../schema.ts';
import type { Transaction, TrialRow } from './transaction.ts';

/**
 * Hides trials, closes them and deletes their calls, in one transaction. The calls of a trial that was trained on stay, so that they can be
 * looked up. A trial's row stays and refuses late writers. Repeating it is harmless, and so are unknown trials.
 */
export async function deleteTrials(db: Database, trialIds: readonly string[]): Promise<void> {
  await db.transaction(async (tx) => {
    // Locks in one order, so that two deletions of the same trials do not wait for each other.
    const found = await tx
      .select()
      .from(trials)
      .where(inArray(trials.id, [...trialIds]))
      .orderBy(trials.id)
      .for('update');
    if (found.length === 0) return;
    const ids = found.map(({ id }) => id);
    await tx.update(trials).set({ status: 'deleted' }).where(inArray(trials.id, ids));
    await tx
      .update(attempts)
      .set({ endedAt: new Date() })
      .where(and(inArray(attempts.trialId, ids), isNull(attempts.endedAt)));
    await tx.delete(refusals).where(inArray(refusals.trialId, ids));
    await tx.delete(outputs).where(inArray(outputs.trialId, ids));
    const trained = await trainedAmong(tx, found);
    const untrained = ids.filter((id) => !trained.has(id));
    await tx.delete(calls).where(inArray(calls.trialId, untrained));
    await tx.delete(blobs).where(inArray(blobs.trialId, untrained));
  });
}

/** Returns the ids of the trials of which a batch was made. A batch also marks the trials that it counts as dropped. */
async function trainedAmong(tx: Transaction, found: readonly TrialRow[]): Promise<Set<string>> {
  const candidates = found.filter(({ batchIteration, outcome }) => batchIteration !== null && outcome !== 'cancelled');
  const groupIds = candidates.flatMap(({ groupId }) => groupId ?? []);
  const dropped =
    groupIds.length === 0
      ? []
      : await tx
          .select({ id: groups.id })
          .from(groups)
          .where(and(inArray(groups.id, groupIds), isNotNull(groups.dropped)));
  const droppedIds = new Set(dropped.map(({ id }) => id));
  return new Set(candidates.filter(({ groupId }) => groupId === null || !droppedIds.has(groupId)).map(({ id }) => id));
}
