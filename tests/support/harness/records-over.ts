import type { Client } from '@temporalio/client';
import { chooseTrials } from '../../../activities/batch/choose-trials.ts';
import type { TakeKey } from '../../../store/queries/takes.ts';
import { allActivities } from './all-activities.ts';
import { depsOver } from './deps-over.ts';
import { readRun } from '../../../activities/run/read-run.ts';
import type { TrainedVersion } from '../../../activities/iteration/record-version.ts';
import type { Database } from '../../../store/database.ts';
import { policyVersions } from '../../../store/schema.ts';
import type { FakeWorld } from '../fakes/fake-activities.ts';

type Place = { db: Database; temporal: Client; home: string };

const NO_WEIGHTS = { checkpoint: '', checkpointSha256: '', canary: { token_ids: [], logprobs: [] } };

/** Returns the real activities of a run's engines, for tests whose engines are not fake. */
export function poolOver(place: Place) {
  const {
    acquirePool,
    beginPublication,
    endPublication,
    hasLostReplica,
    missingVersion,
    poolHas,
    releasePool,
    releaseUnusedPool,
  } = allActivities(depsOver(place));
  return {
    acquirePool,
    beginPublication,
    endPublication,
    hasLostReplica,
    missingVersion,
    poolHas,
    releasePool,
    releaseUnusedPool,
  };
}

/** Returns the real activities for runs, takes, groups, trials and batches, over a fake engine pool and trainer. */
export function recordsOver(world: FakeWorld, place: Place) {
  const { db } = place;
  const {
    awaitGroup,
    checkEvaluation,
    closeTake,
    configureRun,
    endGroup,
    extendGroup,
    findOpenTrial,
    followExternalGroup,
    listRunningGroups,
    openExternalGroup,
    openGroup,
    openTake,
    openTrial,
    planEvaluation,
    planEvaluationOnDemand,
    planGroups,
    prepareRun,
    readWait,
    sealTrial,
    setRunStatus,
  } = allActivities(depsOver(place));
  const fakes = world.general();
  return {
    ...fakes,
    awaitGroup,
    checkEvaluation,
    closeTake,
    configureRun,
    endGroup,
    extendGroup,
    findOpenTrial,
    followExternalGroup,
    listRunningGroups,
    openExternalGroup,
    openGroup,
    openTake,
    openTrial,
    planEvaluation,
    planEvaluationOnDemand,
    planGroups,
    prepareRun,
    readWait,
    sealTrial,
    setRunStatus,
    recordBase: async ({ runId }: { runId: string }) => {
      await db
        .insert(policyVersions)
        .values({ runId, version: 0, stepKey: 'base', ...NO_WEIGHTS })
        .onConflictDoNothing();
    },
    assembleBatch: async (take: TakeKey) => {
      await chooseTrials(db, await readRun(db, take.runId), take);
      return fakes.assembleBatch(take);
    },
    recordVersion: async ({ runId, iteration, take, version, parentVersion }: TrainedVersion) => {
      await db
        .insert(policyVersions)
        .values({ runId, version, parentVersion, iteration, take, stepKey: `${version}`, ...NO_WEIGHTS })
        .onConflictDoNothing();
    },
  };
}
