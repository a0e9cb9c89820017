import { and, eq, inArray, isNotNull, or, sql } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { attempts, groups, iterations, trials } from '../../store/schema.ts';
import { requireOpenTake } from '../iteration/require-open-take.ts';
import { batchTrials, isOffered, readCandidates, usable, type Candidate } from '../rollout/candidates.ts';
import { readLineage } from '../iteration/lineage.ts';
import { batchOf, isLive, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

/**
 * Marks the trials of a take's batch, once: first stragglers that earlier batches did not wait for, then the oldest groups, so that no
 * slow task is overtaken for ever, until there are enough trials. It also marks what was dropped since the batch before, so that exactly
 * one batch counts it.
 */
export async function chooseTrials(db: Database, config: RunConfig, take: TakeKey): Promise<void> {
  const { runId, iteration, take: number } = take;
  const mark = { batchIteration: iteration, batchTake: number };
  await db.transaction(async (tx) => {
    const [row] = await tx.select().from(iterations).where(ofTake(iterations, take)).for('update');
    const { policyVersion } = requireOpenTake(row, `${iteration}.${number}`);
    // A batch that has only stragglers has no group of its own.
    const [ofOwn] = await tx
      .select({ id: groups.id })
      .from(groups)
      .where(ofTake(batchOf(groups), take))
      .limit(1);
    const [straggler] = await tx
      .select({ id: trials.id })
      .from(trials)
      .where(ofTake(batchOf(trials), take))
      .limit(1);
    if (ofOwn || straggler) return;
    const ages = await readLineage(tx, { runId, version: policyVersion, limit: config.max_staleness });
    const candidates = await readCandidates(tx, config, runId, ages);
    const offered = candidates.filter((candidate) => isOffered(candidate, config));
    const chosen = enough(offered, batchTrials(config)).map(({ group }) => group.id);
    if (chosen.length === 0) return;
    const isNew = and(eq(trials.runId, runId), sql`not ${isLive(batchOf(trials))}`);
    await tx
      .update(trials)
      .set(mark)
      .where(and(isNew, inArray(trials.groupId, chosen), isNotNull(trials.outcome)));
    // The stragglers that were dropped: cut, too old, or without a reward.
    const lost = candidates
      .filter(({ isTaken }) => isTaken)
      .flatMap((candidate) => candidate.trials.filter(({ isFinal, isUsable }) => isFinal && !isUsable));
    if (lost.length > 0)
      await tx
        .update(trials)
        .set(mark)
        .where(
          inArray(
            trials.id,
            lost.map(({ id }) => id),
          ),
        );
    const dropped = tx
      .select({ id: groups.id })
      .from(groups)
      .where(and(eq(groups.runId, runId), eq(groups.kind, 'train'), isNotNull(groups.dropped), isLive(groups)));
    await tx
      .update(trials)
      .set(mark)
      .where(and(isNew, inArray(trials.groupId, dropped), or(isNotNull(trials.outcome), lastEnded)));
    const taken = offered
      .filter(({ group, isTaken }) => !isTaken && chosen.includes(group.id))
      .map(({ group }) => group.id);
    if (taken.length > 0)
      await tx
        .update(groups)
        .set({ ...mark, endedAt: sql`coalesce(${groups.endedAt}, now())` })
        .where(inArray(groups.id, taken));
  });
}

const lastEnded = sql`exists (select 1 from ${attempts} as last where last.trial_id = ${trials.id} and last.attempt = ${trials.attempt} and last.ended_at is not null)`;

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
