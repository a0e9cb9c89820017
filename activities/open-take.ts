import { and, desc, eq, isNull } from 'drizzle-orm';
import type { Transaction } from '../store/queries/transaction.ts';
import { groups, iterations } from '../store/schema.ts';
import type { Deps } from './deps.ts';

export type Take = { take: number; /** Workflows of the superseded take that may still run. */ superseded: string[] };

/**
 * Opens the next take of an iteration and supersedes the one before, whose late writers are refused from now on.
 * `resume` goes on in the open take instead.
 */
export const openTake =
  (deps: Deps) =>
  async (input: { runId: string; iteration: number; policyVersion: number; resume: boolean }): Promise<Take> =>
    deps.db.transaction(async (tx) => {
      const { runId, iteration, policyVersion } = input;
      const takes = and(eq(iterations.runId, runId), eq(iterations.iteration, iteration));
      const [last] = await tx.select().from(iterations).where(takes).orderBy(desc(iterations.take)).limit(1).for('update');
      const open = await tx
        .select({ id: groups.id })
        .from(groups)
        .where(and(eq(groups.runId, runId), eq(groups.iteration, iteration), isNull(groups.endedAt)));
      // A take without a group is this very activity's, from a try whose answer was lost.
      const untouched = last?.status === 'open' && !(await hasGroups(tx, runId, iteration, last.take));
      if (last?.status === 'open' && (input.resume || untouched)) return { take: last.take, superseded: [] };
      await tx.update(iterations).set({ status: 'superseded' }).where(takes);
      const take = (last?.take ?? 0) + 1;
      await tx.insert(iterations).values({ runId, iteration, take, policyVersion });
      const before = last ? [`${runId}/${iteration}.${last.take}`] : [];
      return { take, superseded: [...before, ...open.map((group) => group.id)] };
    });

async function hasGroups(tx: Transaction, runId: string, iteration: number, take: number): Promise<boolean> {
  const here = and(eq(groups.runId, runId), eq(groups.iteration, iteration), eq(groups.take, take));
  return (await tx.select({ id: groups.id }).from(groups).where(here).limit(1)).length > 0;
}
