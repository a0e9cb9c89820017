import { and, asc, eq, inArray, isNotNull, isNull, or, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { groups, iterations, trials } from '../../store/schema.ts';
import { requireOpenTake } from '../require-open-take.ts';
import { isLive } from '../rollout/live.ts';

export type TakeKey = { runId: string; iteration: number; take: number };

/**
 * Marks what a take's batch is made of, once: the oldest groups that may be used, so that no slow task is overtaken for ever, and the
 * stragglers that earlier batches did not wait for.
 */
export async function chooseTrials(db: Database, take: TakeKey, wanted: number): Promise<void> {
  const { runId, iteration, take: number } = take;
  const mark = { batchIteration: iteration, batchTake: number };
  await db.transaction(async (tx) => {
    const here = and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.take, number));
    const [row] = await tx.select().from(iterations).where(here).for('update');
    requireOpenTake(row, `${iteration}.${number}`);
    const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'), isNull(groups.dropped), isNotNull(groups.endedAt), isLive(groups));
    const consumed = isLive({ runId: groups.runId, iteration: groups.batchIteration, take: groups.batchTake });
    const isOurs = and(eq(groups.batchIteration, iteration), eq(groups.batchTake, number));
    const [made] = await tx.select({ id: groups.id }).from(groups).where(and(ofRun, isOurs)).limit(1);
    if (made) return;
    const oldest = await tx.select({ id: groups.id }).from(groups).where(and(ofRun, sql`not ${consumed}`)).orderBy(asc(groups.iteration), asc(groups.ordinal)).limit(wanted);
    const used = await tx.select({ id: groups.id }).from(groups).where(and(ofRun, consumed));
    if (oldest.length > 0) await tx.update(groups).set(mark).where(inArray(groups.id, oldest.map(({ id }) => id)));
    const isTaken = isLive({ runId: trials.runId, iteration: trials.batchIteration, take: trials.batchTake });
    const candidates = [...oldest, ...used].map(({ id }) => id);
    if (candidates.length === 0) return;
    const isEnded = and(isNotNull(trials.outcome), or(isNull(trials.batchIteration), sql`not ${isTaken}`));
    await tx.update(trials).set(mark).where(and(eq(trials.runId, runId), inArray(trials.groupId, candidates), isEnded));
  });
}
