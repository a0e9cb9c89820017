import { WorkflowIdReusePolicy } from '@temporalio/common';
import type { Client } from '@temporalio/client';
import { and, eq } from 'drizzle-orm';
import { copyBatch, openBatch } from '../../activities/batch/copy-batch.ts';
import { forkBase, requireForkable } from '../../activities/run/fork-base.ts';
import { readRun } from '../../activities/run/read-run.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Database } from '../../store/database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { requireRunId } from '../../core/ids.ts';
import { isSameTake } from '../../store/queries/takes.ts';
import { batches, iterations } from '../../store/schema.ts';
import type { rescoreIteration } from '../../workflows/rescore-iteration.ts';
import { TASK_QUEUE } from '../../core/task-queues.ts';
import type { DeploymentClients } from './connect.ts';

export type Rescoring = { from: string; iteration: number; weights: Record<string, number>; runId: string };

/**
 * Trains on a finished iteration's batch again, from the same parent version, under other reward weights, as the only iteration of
 * a new run. Nothing is sampled.
 * @throws TrialgateError `bad_input`; then no run was made
 */
export async function rescoreRun(
  { client, db }: DeploymentClients,
  { from, iteration, weights, runId }: Rescoring,
): Promise<void> {
  requireRunId(runId);
  const config = { ...(await readRun(db, from)), reward_weights: weights, iterations: 1 };
  const { take, batch } = await finishedTake(db, from, iteration);
  const opened = await openBatch(batch.path);
  const unknown = Object.keys(weights).filter((name) => !opened.rewards.includes(name));
  if (unknown.length > 0) {
    const message = `no trial of iteration ${iteration} has a reward named ${unknown.join(' or ')}; its rewards are: ${opened.rewards.join(', ')}`;
    throw new TrialgateError('bad_input', message);
  }
  // A refusal must leave no copy of the batch.
  await requireForkable(db, { runId: from, version: take.policyVersion });
  const here = { runId, iteration: 0, take: 1 };
  const { createdAt: _, ...made } = { ...batch, ...here, ...(await copyBatch(opened, runId)) };
  await forkBase(db, {
    runId,
    config,
    from: { runId: from, version: take.policyVersion },
    rescores: `${from}/${iteration}.${take.take}`,
    also: async (tx) => {
      await tx.insert(iterations).values({ ...here, policyVersion: 0 });
      await tx.insert(batches).values(made);
    },
  });
  await startRescoring(client, runId, config);
}

/** Starts a rescoring, also one that failed before: a step that was finished is not repeated. */
export async function startRescoring(client: Client, runId: string, { deadlines }: RunConfig): Promise<void> {
  await client.workflow.start<typeof rescoreIteration>('rescoreIteration', {
    workflowId: runId,
    taskQueue: TASK_QUEUE,
    args: [{ runId, trainSeconds: deadlines.train }],
    workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
    staticSummary: 'a finished batch under other reward weights',
  });
}

async function finishedTake(db: Database, runId: string, iteration: number) {
  const [row] = await db
    .select({ take: iterations, batch: batches })
    .from(iterations)
    .innerJoin(batches, isSameTake(batches, iterations))
    .where(and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.status, 'done')));
  if (row) return row;
  throw new TrialgateError(
    'bad_input',
    `run ${runId} has not finished an iteration ${iteration}: "npx trialgate show ${runId}" lists its iterations`,
  );
}
