import { iterations, policyVersions } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { Checkpoint, TrainStepResult } from '../../core/gpu-contract.ts';
import { requireOpenTake } from './require-open-take.ts';
import { ofTake } from '../../store/queries/takes.ts';

/** Writes the base model as version 0. */
export const recordBase =
  (deps: Deps) =>
  async (input: { runId: string; base: Checkpoint }): Promise<void> => {
    const { checkpoint, checkpoint_sha256: checkpointSha256, canary, metrics } = input.base;
    await deps.db
      .insert(policyVersions)
      .values({ runId: input.runId, version: 0, stepKey: 'base', checkpoint, checkpointSha256, canary, metrics })
      .onConflictDoNothing();
  };

export type TrainedVersion = {
  runId: string;
  iteration: number;
  take: number;
  version: number;
  parentVersion: number;
  batchSha256: string;
  step: TrainStepResult;
};

/** Writes what a train step made, once. A step whose take was superseded meanwhile is refused. */
export const recordVersion =
  (deps: Deps) =>
  async (input: TrainedVersion): Promise<void> => {
    const { runId, iteration, take, version, parentVersion, batchSha256, step } = input;
    const here = ofTake(iterations, input);
    await deps.db.transaction(async (tx) => {
      const [row] = await tx.select().from(iterations).where(here).for('update');
      requireOpenTake(row, `${iteration}.${take}`);
      const { step_key: stepKey, checkpoint, checkpoint_sha256: checkpointSha256, canary, metrics, skipped } = step;
      await tx
        .insert(policyVersions)
        .values({
          runId,
          version,
          parentVersion,
          iteration,
          take,
          stepKey,
          checkpoint,
          checkpointSha256,
          batchSha256,
          canary,
          metrics,
          skipped,
        })
        .onConflictDoNothing();
    });
  };
