import { asc, eq, inArray } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { readTrainableCalls } from '../../store/queries/read-trainable-calls.ts';
import type { TrialRow } from '../../store/queries/transaction.ts';
import { buildSamples, type TokenSample } from '../../store/samples/build-samples.ts';
import { groups, trials } from '../../store/schema.ts';
import { readLineage } from '../iteration/lineage.ts';
import { trialRewardsOf, type TrialRewards } from '../rollout/rewards-of.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { batchOf, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { recordedBy } from './routed-experts.ts';
import type { Sample } from './sample.ts';

export type BatchContents = {
  samples: Sample[];
  /** Samples that are left out although their trials are used: too old, or sampled by a version that is no ancestor. */
  stale: Sample[];
  /** The staleness of each sample, in versions. */
  staleness: number[];
  /** The trials of the batch, and those that were dropped since the batch before. */
  trials: TrialRow[];
};

/** Returns the samples of a take's batch, in an order that does not depend on who finished first. */
export async function collectSamples(
  db: Database,
  config: RunConfig,
  take: TakeKey,
  version: number,
): Promise<BatchContents> {
  const rows = await db
    .select({ trial: trials, dropped: groups.dropped })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(ofTake(batchOf(trials), take))
    .orderBy(asc(groups.iteration), asc(groups.take), asc(groups.ordinal), asc(trials.trialIndex));
  const ages = await readLineage(db, { runId: take.runId, version, limit: config.max_staleness });
  const earlier = await readEarlier(
    db,
    config,
    rows.map(({ trial }) => trial),
  );
  const collected: BatchContents = { samples: [], stale: [], staleness: [], trials: rows.map(({ trial }) => trial) };
  const companions = new Map<string, TrialRewards[]>();
  for (const { trial, dropped } of rows) {
    const earned = trialRewardsOf(trial, config);
    if (dropped !== null || earned === null || trial.groupId === null) continue;
    const ofGroup = companions.get(trial.groupId) ?? [...(earlier.get(trial.groupId) ?? [])];
    companions.set(trial.groupId, ofGroup);
    const before = collected.samples.length;
    const trainable = await readTrainableCalls(db, { trialId: trial.id, attempt: trial.attempt });
    const calls = new Map(trainable.map((call) => [call.id, call]));
    for (const sequence of buildSamples(trainable)) {
      const sample = {
        ...sequence,
        ...(config.enable_router_replay
          ? { routedExperts: sequence.callIds.flatMap((id) => recordedBy(calls.get(id))) }
          : {}),
        ...earned,
        groupId: trial.groupId,
        trialId: trial.id,
        attempt: trial.attempt,
        companions: ofGroup,
      };
      const age = ageOf(sequence, ages);
      if (age === null) collected.stale.push(sample);
      else {
        collected.samples.push(sample);
        collected.staleness.push(age);
      }
    }
    // A baseline without the trials that cannot be trained on would favor the other trials.
    if (collected.samples.length === before) ofGroup.push(earned);
  }
  return collected;
}

/** Returns the steps between the starting version and the oldest version that sampled a trained token; null when that is more than the run allows. */
function ageOf({ policyVersions }: TokenSample, ages: ReadonlyMap<number, number>): number | null {
  let oldest = 0;
  for (const version of new Set(policyVersions)) {
    if (version === null) continue;
    const age = ages.get(version);
    if (age === undefined) return null;
    oldest = Math.max(oldest, age);
  }
  return oldest;
}

/** Returns the rewards of trials of the same groups that an earlier batch has, because a group has one baseline. */
async function readEarlier(db: Database, config: RunConfig, inBatch: TrialRow[]): Promise<Map<string, TrialRewards[]>> {
  const ids = [...new Set(inBatch.flatMap(({ groupId }) => (groupId === null ? [] : [groupId])))];
  const earlier = new Map<string, TrialRewards[]>();
  if (config.stragglers !== 'carry_over' || ids.length === 0) return earlier;
  const own = new Set(inBatch.map(({ id }) => id));
  const all = await db.select().from(trials).where(inArray(trials.groupId, ids)).orderBy(asc(trials.trialIndex));
  for (const trial of all) {
    const earned = trialRewardsOf(trial, config);
    if (own.has(trial.id) || trial.batchIteration === null || trial.groupId === null || earned === null) continue;
    earlier.set(trial.groupId, [...(earlier.get(trial.groupId) ?? []), earned]);
  }
  return earlier;
}
