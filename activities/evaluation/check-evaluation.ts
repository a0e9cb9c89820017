import { ApplicationFailure } from '@temporalio/common';
import { and, eq, inArray } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { calls, groups, trials, type Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { commonReason, readGroupTrials } from '../rollout/group-trials.ts';

export type EvaluatedGroup = Pick<GroupPlan, 'id' | 'size'>;

/** Ends of a trial that say nothing about a model which never replied. */
const WITHOUT_REPLY: readonly (Outcome | null)[] = ['agent_error', 'timed_out'];

/**
 * Refuses an evaluation when most of its trials ended as `infra_error`, because it says nothing about its version. Those trials run again
 * with their groups. A verifier that gives no reward is no reason, because it would give none the next time either. Refuses also the first
 * one, of version 0, if every agent failed before it got a reply: the trials of the run would fail in the same way.
 */
export const checkEvaluation =
  (deps: Pick<Deps, 'db'>) =>
  async (input: { groups: EvaluatedGroup[] }): Promise<void> => {
    const ids = input.groups.map(({ id }) => id);
    const all = await readGroupTrials(deps.db, inArray(groups.id, ids));
    const planned = input.groups.reduce((sum, { size }) => sum + size, 0);
    const failed = all.filter(({ outcome }) => outcome === 'infra_error');
    // A trial that no host opened has no row.
    const bad = failed.length + planned - all.length;
    if (bad * 2 <= planned) {
      const isWithoutReply = all.length > 0 && all.every(({ outcome }) => WITHOUT_REPLY.includes(outcome));
      if (!isWithoutReply || (await hasReply(deps.db, ids))) return;
      const [first] = await deps.db
        .select({ runId: groups.runId })
        .from(groups)
        .where(and(inArray(groups.id, ids), eq(groups.policyVersion, 0)));
      if (!first) return;
      throw ApplicationFailure.create({
        type: 'no_reply',
        message: `none of the evaluation's ${planned} trials got a reply of the model: ${commonReason(all)}. Repair the cause and ${howToGoOn(first.runId, ids)}`,
        nonRetryable: true,
      });
    }
    const why = failed.length > 0 ? commonReason(failed) : 'no host opened a sandbox for them';
    throw ApplicationFailure.create({
      type: 'most_trials_failed',
      message: `${bad} of the evaluation's ${planned} trials failed: ${why}`,
      nonRetryable: true,
    });
  };

/** A run waits for its own evaluation, and nothing waits for one on demand, whose groups are `{run}/eval@{version}.{n}/{ordinal}`. */
const howToGoOn = (runId: string, groupIds: readonly string[]): string =>
  groupIds.every((id) => /\/eval@\d+\.\d+\/\d+$/.test(id))
    ? 'evaluate again'
    : `start another run, or go on without this evaluation: "npx trialgate configure ${runId} evaluation.before=false", then "npx trialgate resume ${runId}"`;

/** True when a trial of these groups has a completed call. */
async function hasReply(db: Database, groupIds: string[]): Promise<boolean> {
  const found = await db
    .select({ id: calls.id })
    .from(calls)
    .innerJoin(trials, eq(trials.id, calls.trialId))
    .where(and(inArray(trials.groupId, groupIds), eq(calls.status, 'completed')))
    .limit(1);
  return found.length > 0;
}
