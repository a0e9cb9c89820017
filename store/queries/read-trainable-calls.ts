import { and, asc, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import type { TrainableCall } from '../samples/build-samples.ts';
import { calls } from '../schema.ts';

/** The completed calls of one attempt that a gradient can trust (rule 2), in the order of their commits. */
export async function readTrainableCalls(db: Database, input: { trialId: string; attempt: number }): Promise<TrainableCall[]> {
  const { trialId, attempt } = input;
  const rows = await db
    .select()
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), eq(calls.status, 'completed'), isNull(calls.untrainable)))
    .orderBy(asc(calls.seq));
  return rows.flatMap(({ id, promptTokenIds, completionTokenIds, logprobs, policyVersion, versionSpans, sampling }) => {
    if (!promptTokenIds || !completionTokenIds?.length || !logprobs) return [];
    const temperature = typeof sampling.temperature === 'number' ? sampling.temperature : 1;
    const policyVersions = versionSpans
      ? versionSpans.flatMap(({ version, start, end }) => new Array<number>(end - start).fill(version))
      : policyVersion;
    return [{ id, promptTokenIds, completionTokenIds, logprobs, policyVersions, temperature }];
  });
}
