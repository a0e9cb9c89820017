import { getExternalWorkflowHandle, upsertSearchAttributes } from '@temporalio/workflow';
import { gpu, store } from './activities.ts';
import { phaseSignal } from './messages.ts';
import { publish } from './publish-version.ts';
import { runGroups } from './run-groups.ts';
import type { Deadlines } from './train-run.ts';

export type IterationInput = {
  runId: string;
  iteration: number;
  take: number;
  policyVersion: number;
  deadlines: Deadlines;
};

/** One take of one iteration: sample groups from the policy, train on them, publish what came out. Returns the new version. */
export async function grpoIteration(input: IterationInput): Promise<number> {
  const { runId, iteration, take, policyVersion, deadlines } = input;
  const run = getExternalWorkflowHandle(runId);
  const seconds: Record<string, number> = {};

  await enter('rollout');
  const plans = await store.planGroups({ runId, iteration, take, policyVersion });
  await run.signal(phaseSignal, { phase: 'rollout', groups: plans.length });
  await timed('rollout', () => runGroups(runId, policyVersion, plans, deadlines.iteration));

  const batch = await timed('batch', () => store.assembleBatch({ runId, iteration, take }));

  await enter('train');
  const step = await timed('train', () => gpu(deadlines.train).trainStep(batch.step));
  const { version } = batch.step;
  const { parentVersion } = batch;
  await store.recordVersion({ runId, iteration, take, version, parentVersion, batchSha256: batch.step.batch_sha256, step });

  await enter('publish');
  await timed('publish', () => publish({ runId, version, fallback: parentVersion }));

  await store.closeTake({ runId, iteration, take, seconds });
  return version;

  async function enter(phase: string): Promise<void> {
    upsertSearchAttributes({ TrialgatePhase: [phase] });
    if (phase !== 'rollout') await run.signal(phaseSignal, { phase });
  }
  async function timed<T>(phase: string, work: () => Promise<T>): Promise<T> {
    const start = Date.now();
    const result = await work();
    seconds[phase] = (Date.now() - start) / 1000;
    return result;
  }
}
