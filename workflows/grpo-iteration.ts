import { getExternalWorkflowHandle, upsertSearchAttributes } from '@temporalio/workflow';
import { assembling, gpu, store, STORE_SECONDS } from './activities.ts';
import { phaseSignal } from './messages.ts';
import { enginesOf, publish } from './publish-version.ts';

export type IterationInput = {
  runId: string;
  iteration: number;
  take: number;
  /** The seconds that a train step may take. */
  trainSeconds: number;
  /** The seconds of the phases before: the rollout. */
  seconds: Record<string, number>;
};

/** Makes a batch of a take's groups, trains on it, and publishes the new version to every engine. Returns that version. */
export async function grpoIteration(input: IterationInput): Promise<number> {
  const { runId, iteration, take } = input;
  const run = getExternalWorkflowHandle(runId);
  const seconds = { ...input.seconds };

  await enter('batch', 'the batch of what was sampled', STORE_SECONDS);
  const batch = await timed('batch', () => assembling.assembleBatch({ runId, iteration, take }));

  await enter('train', 'the train step', input.trainSeconds);
  const step = await timed('train', () => gpu(input.trainSeconds).trainStep(batch.step));
  const { version } = batch.step;
  const { parentVersion } = batch;
  await store.recordVersion({
    runId,
    iteration,
    take,
    version,
    parentVersion,
    batchSha256: batch.step.batch_sha256,
    step,
  });

  await enter('publish', ...enginesOf(version));
  await timed('publish', () =>
    publish({ runId, version, fallback: parentVersion }, (waitsFor, atMost) =>
      run.signal(phaseSignal, { phase: 'publish', waitsFor, seconds: atMost }),
    ),
  );

  await store.closeTake({ runId, iteration, take, seconds });
  return version;

  async function enter(phase: string, waitsFor: string, atMost: number): Promise<void> {
    upsertSearchAttributes({ TrialgatePhase: [phase] });
    await run.signal(phaseSignal, { phase, waitsFor, seconds: atMost });
  }
  async function timed<T>(phase: string, work: () => Promise<T>): Promise<T> {
    const start = Date.now();
    const result = await work();
    seconds[phase] = (Date.now() - start) / 1000;
    return result;
  }
}
