import { CancellationScope, isCancellation, upsertSearchAttributes } from '@temporalio/workflow';
import { assembling, gpu, store } from './activities.ts';
import { attributesOf } from './attributes.ts';
import { describe } from './describe.ts';

export type RescoreInput = { runId: string; trainSeconds: number };

/**
 * Trains on a recorded batch again, under other reward weights and from the checkpoint that it was sampled from. It samples nothing and
 * needs no engine. Whoever evaluates or continues the new version publishes it.
 */
export async function rescoreIteration({ runId, trainSeconds }: RescoreInput): Promise<{ version: number }> {
  const take = { runId, iteration: 0, take: 1 };
  upsertSearchAttributes(attributesOf({ runId, iteration: 0, version: 0, phase: 'train' }));
  try {
    const start = Date.now();
    const { step: input, parentVersion } = await assembling.assembleBatch(take);
    const step = await gpu(trainSeconds).trainStep(input);
    const { version } = input;
    await store.recordVersion({ ...take, version, parentVersion, batchSha256: input.batch_sha256, step });
    await store.closeTake({ ...take, seconds: { train: (Date.now() - start) / 1000 } });
    await store.setRunStatus({ runId, status: 'completed' });
    upsertSearchAttributes({ TrialgatePolicyVersion: [version], TrialgatePhase: ['completed'] });
    return { version };
  } catch (error) {
    const status = isCancellation(error) ? 'cancelled' : 'failed';
    await CancellationScope.nonCancellable(() => store.setRunStatus({ runId, status, reason: describe(error) }));
    throw error;
  }
}
