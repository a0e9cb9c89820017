import { and, desc, eq, ne, or } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { groups, iterations } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { requireNotPruned } from '../run/missing-checkpoint.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { mayRun } from './list-running-groups.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';

export type Take = { take: number; /** The workflows of superseded takes that may still run. */ superseded: string[] };

/**
 * Opens the next take of an iteration and supersedes the one before, whose late writers are refused from now on. `resume` continues the
 * open take instead.
 */
export const openTake =
  (deps: Deps) =>
  async (input: { runId: string; iteration: number; policyVersion: number; resume: boolean }): Promise<Take> =>
    deps.db.transaction(async (tx) => {
      const { runId, iteration, policyVersion } = input;
      const takes = and(eq(iterations.runId, runId), eq(iterations.iteration, iteration));
      const [last] = await tx
        .select()
        .from(iterations)
        .where(takes)
        .orderBy(desc(iterations.take))
        .limit(1)
        .for('update');
      // An open take without results was opened by an earlier try of this activity, whose answer was lost.
      const untouched = last?.status === 'open' && last.trainedVersion === null && !(await isUsed(tx, last));
      const isResumed = last?.status === 'open' && (input.resume || untouched);
      const take = isResumed ? last.take : (last?.take ?? 0) + 1;
      if (!isResumed) {
        await nonRetryable(() => requireNotPruned(tx, runId, policyVersion));
        await tx.update(iterations).set({ status: 'superseded' }).where(takes);
        await tx.insert(iterations).values({ runId, iteration, take, policyVersion });
      }
      return { take, superseded: await readSuperseded(tx, runId, iteration, take) };
    });

/** Returns the iteration's own workflow of the take before, and the groups of earlier takes of which a trial may run. */
async function readSuperseded(tx: Transaction, runId: string, iteration: number, take: number): Promise<string[]> {
  if (take === 1) return [];
  const before = and(eq(groups.runId, runId), eq(groups.iteration, iteration), ne(groups.take, take), mayRun);
  const open = await tx.select({ id: groups.id }).from(groups).where(before);
  return [`${runId}/${iteration}.${take - 1}`, ...open.map((group) => group.id)];
}

async function isUsed(tx: Transaction, key: TakeKey): Promise<boolean> {
  return (
    (
      await tx
        .select({ id: groups.id })
        .from(groups)
        .where(or(ofTake(groups, key), ofTake(batchOf(groups), key)))
        .limit(1)
    ).length > 0
  );
}
