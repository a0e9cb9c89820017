import { and, asc, eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { readTrainableCalls } from '../../store/queries/read-trainable-calls.ts';
import { buildSamples } from '../../store/samples/build-samples.ts';
import { groups, trials } from '../../store/schema.ts';
import type { RunConfig } from '../run-config.ts';
import type { Sample } from './sample.ts';

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
    const trainable = await readTrainableCalls(db, { trialId: trial.id, attempt: trial.attempt });
    // Staleness 0: only what the take's own policy version sampled.
    const sequences = buildSamples(trainable.filter(({ policyVersions }) => policyVersions === version));
    for (const sequence of sequences) {
      samples.push({ ...sequence, rewards, companions: [], groupId: trial.groupId, trialId: trial.id, attempt: trial.attempt });
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
