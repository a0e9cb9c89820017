import { and, asc, eq, isNull } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { calls, groups, trials } from '../../store/schema.ts';
import type { RunConfig } from '../run-config.ts';
import { mergeCalls } from './merge-calls.ts';
import type { Sample, TrainableCall } from './sample.ts';

/** The samples of one take, in an order that does not depend on who finished first. */
export async function collectSamples(
  db: Database,
  config: RunConfig,
  take: { runId: string; iteration: number; take: number },
): Promise<Sample[]> {
  const members = await db
    .select({ trial: trials, version: groups.policyVersion })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(and(eq(groups.runId, take.runId), eq(groups.iteration, take.iteration), eq(groups.take, take.take)))
    .orderBy(asc(groups.ordinal), asc(trials.member));
  const samples: Sample[] = [];
  for (const { trial, version } of members) {
    const rewards = rewardsOf(trial, config);
    if (rewards === null || trial.groupId === null) continue;
    const sequences = mergeCalls(await trainableCalls(db, trial.id, trial.attempt, version));
    for (const sequence of sequences) {
      samples.push({ ...sequence, rewards, groupId: trial.groupId, trialId: trial.id, attempt: trial.attempt });
    }
  }
  return samples;
}

/** Null: this trial is not trained on. Only the verifier's numbers count; a run may choose 0 for trials that were cut. */
function rewardsOf(trial: typeof trials.$inferSelect, config: RunConfig): Record<string, number> | null {
  if (trial.outcome === 'scored') return trial.rewards;
  if (trial.outcome !== 'truncated' && trial.outcome !== 'agent_error') return null;
  const treatment = config[trial.outcome];
  if (treatment === 'mask') return null;
  return treatment === 'zero' ? { reward: 0 } : trial.rewards;
}

/** Staleness 0: only what the take's own policy version sampled. */
async function trainableCalls(db: Database, trialId: string, attempt: number, version: number): Promise<TrainableCall[]> {
  const rows = await db
    .select()
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), eq(calls.status, 'completed'), isNull(calls.untrainable)))
    .orderBy(asc(calls.startedAt), asc(calls.seq));
  return rows.flatMap(({ id, promptTokenIds, completionTokenIds, logprobs, policyVersion, sampling }) => {
    if (!promptTokenIds || !completionTokenIds?.length || !logprobs || policyVersion !== version) return [];
    const temperature = typeof sampling.temperature === 'number' ? sampling.temperature : 1;
    return [{ id, promptTokenIds, completionTokenIds, logprobs, policyVersion, temperature }];
  });
}
