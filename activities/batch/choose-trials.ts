import { and, eq, inArray, isNotNull, isNull, or, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { groups, iterations, trials } from '../../store/schema.ts';
import { requireOpenTake } from '../require-open-take.ts';
import { batchTrials, isOffered, readCandidates, usable, type Candidate } from '../rollout/candidates.ts';
import { readLineage } from '../rollout/lineage.ts';
import { isLive } from '../rollout/live.ts';
import type { RunConfig } from '../run-config.ts';

export type TakeKey = { runId: string; iteration: number; take: number };

/**
 * Marks what a take's batch is made of, once: stragglers that earlier batches did not wait for, then the oldest groups, so that no slow
 * task is overtaken for ever, until there are enough trials.
 */
export async function chooseTrials(db: Database, config: RunConfig, take: TakeKey): Promise<void> {
  const { runId, iteration, take: number } = take;
  const mark = { batchIteration: iteration, batchTake: number };
  await db.transaction(async (tx) => {
    const here = and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.take, number));
    const [row] = await tx.select().from(iterations).where(here).for('update');
    const { policyVersion } = requireOpenTake(row, `${iteration}.${number}`);
    const [made] = await tx.select({ id: groups.id }).from(groups).where(and(eq(groups.runId, runId), eq(groups.batchIteration, iteration), eq(groups.batchTake, number))).limit(1);
    if (made) return;
    const ages = await readLineage(tx, { runId, version: policyVersion, limit: config.max_staleness });
    const offered = (await readCandidates(tx, config, runId, ages)).filter((candidate) => isOffered(candidate, config));
    const chosen = enough(offered, batchTrials(config)).map(({ group }) => group.id);
    if (chosen.length === 0) return;
    const isUsed = isLive({ runId: trials.runId, iteration: trials.batchIteration, take: trials.batchTake });
    const isEnded = and(isNotNull(trials.outcome), or(isNull(trials.batchIteration), sql`not ${isUsed}`));
    await tx.update(trials).set(mark).where(and(eq(trials.runId, runId), inArray(trials.groupId, chosen), isEnded));
    const taken = offered.filter(({ group, isTaken }) => !isTaken && chosen.includes(group.id)).map(({ group }) => group.id);
    if (taken.length > 0) await tx.update(groups).set({ ...mark, endedAt: sql`coalesce(${groups.endedAt}, now())` }).where(inArray(groups.id, taken));
  });
}

function enough(offered: Candidate[], wanted: number): Candidate[] {
  const chosen: Candidate[] = [];
  let trialsChosen = 0;
  for (const candidate of [...offered.filter(({ isTaken }) => isTaken), ...offered.filter(({ isTaken }) => !isTaken)]) {
    if (trialsChosen >= wanted) break;
    chosen.push(candidate);
    trialsChosen += usable(candidate);
  }
  return chosen;
}
