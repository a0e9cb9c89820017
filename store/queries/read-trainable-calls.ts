import { and, asc, eq, getTableColumns } from 'drizzle-orm';
import { unpackMask } from '../calls/sampling-mask.ts';
import { restorePrompts } from '../calls/restore-ids.ts';
import type { Database } from '../database.ts';
import type { TrainableCall } from '../samples/build-samples.ts';
import { calls } from '../schema.ts';

const { request: _request, response: _response, ...withoutTexts } = getTableColumns(calls);

/** Returns the completed calls of one attempt that the trainer can reproduce (invariant 2), in the order of their commits. */
export async function readTrainableCalls(
  db: Database,
  input: { trialId: string; attempt: number },
): Promise<TrainableCall[]> {
  const ofAttempt = and(eq(calls.trialId, input.trialId), eq(calls.attempt, input.attempt));
  const rows = await db.select(withoutTexts).from(calls).where(ofAttempt).orderBy(asc(calls.seq));
  const prompts = restorePrompts(rows);
  let completed = 0;
  return rows.flatMap((row, i) => {
    const promptTokenIds = prompts[i];
    const turn = row.status === 'completed' ? completed++ : completed;
    const { completionTokenIds, logprobs, sampling, samplingMask: packed, versionSpans } = row;
    if (
      row.status !== 'completed' ||
      row.untrainable !== null ||
      !promptTokenIds ||
      !completionTokenIds?.length ||
      !logprobs
    )
      return [];
    const temperature = typeof sampling.temperature === 'number' ? sampling.temperature : 1;
    const policyVersions = versionSpans
      ? versionSpans.flatMap(({ version, start, end }) => new Array<number>(end - start).fill(version))
      : row.policyVersion;
    const samplingMask = packed && unpackMask(packed);
    const { id, routedExperts } = row;
    const call = { id, turn, promptTokenIds, completionTokenIds, logprobs, samplingMask, policyVersions, temperature };
    return [{ ...call, ...(routedExperts ? { routedExperts } : {}) }];
  });
}
