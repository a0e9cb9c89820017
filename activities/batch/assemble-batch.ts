import { ApplicationFailure } from '@temporalio/common';
import { and, eq, sql } from 'drizzle-orm';
import { join } from 'node:path';
import { bestVersion } from '../run/best-version.ts';
import type { Transaction } from '../../store/queries/transaction.ts';
import { batches, iterations, policyVersions, runs } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { TrainStepInput } from '../../core/gpu-contract.ts';
import { readRun } from '../run/read-run.ts';
import { requireOpenTake } from '../iteration/require-open-take.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { batchMetrics } from './batch-metrics.ts';
import { askTeacher } from './ask-teacher.ts';
import { chooseTrials } from './choose-trials.ts';
import { readExperts } from './routed-experts.ts';
import { ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { collectSamples } from './collect-samples.ts';
import { trainerSettingsOf } from '../../core/run-config/trainer-settings.ts';
import { whyEmpty } from './why-empty.ts';
import { writeBatch } from './write-batch.ts';
import { whileHeartbeating } from '../temporal/while-heartbeating.ts';

type BatchFile = Pick<typeof batches.$inferSelect, 'sha256' | 'path' | 'samples' | 'trials' | 'metrics'>;
export type AssembledBatch = { samples: number; parentVersion: number; step: TrainStepInput };

/** Makes the batch file of a take, once, and reserves the policy version that its train step will make. */
export const assembleBatch =
  (deps: Pick<Deps, 'db' | 'home'>) =>
  (input: TakeKey): Promise<AssembledBatch> =>
    whileHeartbeating(async (signal) => {
      const { runId, iteration, take } = input;
      const config = await readRun(deps.db, runId);
      const here = ofTake(iterations, input);
      const [made] = await deps.db.select().from(batches).where(ofTake(batches, input));
      if (!made) await chooseTrials(deps.db, config, input);
      const file = made ?? (await writeSamples(deps, config, input, signal));
      const best = await bestVersion(deps.db, runId, config.reward_weights);
      return deps.db.transaction(async (tx) => {
        const [found] = await tx.select().from(iterations).where(here).for('update');
        const row = requireOpenTake(found, `${iteration}.${take}`);
        const { sha256, path, samples } = await recordBatch(tx, input, file);
        let version = row.trainedVersion;
        if (version === null) {
          const [run] = await tx
            .update(runs)
            .set({ nextVersion: sql`greatest(${runs.nextVersion}, 1) + 1` })
            .where(eq(runs.id, runId))
            .returning({ next: runs.nextVersion });
          version = (run?.next ?? 2) - 1;
          await tx.update(iterations).set({ trainedVersion: version }).where(here);
        }
        const [parent] = await tx
          .select()
          .from(policyVersions)
          .where(and(eq(policyVersions.runId, runId), eq(policyVersions.version, row.policyVersion)));
        if (!parent) throw new Error(`run ${runId} has no policy version ${row.policyVersion}`);
        return {
          samples,
          parentVersion: row.policyVersion,
          step: {
            run_id: runId,
            version,
            parent_checkpoint: parent.checkpoint,
            batch_path: path,
            batch_sha256: sha256,
            home: deps.home,
            best_checkpoint: best?.checkpoint,
            trainer: trainerSettingsOf(config),
          },
        };
      });
    });

/**
 * Stores the batch unless one is stored, and returns the stored one: another attempt may have made one in the meantime, with other
 * roundings of a teacher's numbers.
 */
async function recordBatch(
  tx: Transaction,
  take: TakeKey,
  { sha256, path, samples, trials, metrics }: BatchFile,
): Promise<BatchFile> {
  const { runId, iteration, take: number } = take;
  await tx
    .insert(batches)
    .values({ runId, iteration, take: number, sha256, path, samples, trials, metrics })
    .onConflictDoNothing();
  const [row] = await tx.select().from(batches).where(ofTake(batches, take));
  if (!row) throw new Error(`the batch of ${runId}, iteration ${iteration} is gone`);
  return row;
}

async function writeSamples(
  deps: Pick<Deps, 'db' | 'home'>,
  config: RunConfig,
  take: TakeKey,
  signal: AbortSignal,
): Promise<BatchFile> {
  const { iteration, take: number } = take;
  const [row] = await deps.db.select().from(iterations).where(ofTake(iterations, take));
  const collected = await collectSamples(
    deps.db,
    config,
    take,
    requireOpenTake(row, `${iteration}.${number}`).policyVersion,
  );
  const { samples } = collected;
  if (samples.length === 0) {
    const message = `iteration ${iteration} has no trainable sample: ${await whyEmpty(deps.db, take, collected.stale.length)}`;
    throw ApplicationFailure.create({ type: 'empty_batch', message, nonRetryable: true });
  }
  const metrics = await batchMetrics(deps.db, config, collected);
  const answers = config.teacher && (await askTeacher(config.teacher, samples, signal));
  const experts = config.enable_router_replay ? await readExperts(deps.db, samples, signal) : null;
  const file = await writeBatch(
    join(deps.home, 'batches'),
    samples.map((sample, i) => ({
      ...sample,
      ...(answers ? { teacherLogprobs: answers[i] } : {}),
      ...(experts ? { expertRows: experts[i] } : {}),
    })),
  );
  return { ...file, samples: samples.length, trials: new Set(samples.map((sample) => sample.trialId)).size, metrics };
}
