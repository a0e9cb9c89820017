import { TrialgateError } from '../../core/errors.ts';
import { hadLongCall, readEngineWait } from '../../store/queries/read-engine-wait.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import type { Evidence, Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';

export type SealTrialInput = {
  trialId: string;
  /** Absent: the current attempt. */
  attempt?: number;
  outcome: Outcome;
  reason?: string;
  evidence?: Evidence;
  rewards?: Record<string, number>;
  turnRewards?: Record<string, number[]>;
  seconds?: Record<string, number>;
  host?: string;
  final?: boolean;
  /** The group and the index of a trial that no host has opened and that has no row. */
  unopened?: { group: GroupPlan; trialIndex: number };
};

/** Ends an attempt. After an `infra_error`, and after a `cancelled` that is not `final`, the trial stays open for the next one. */
export const sealTrial =
  (deps: Pick<Deps, 'db'>) =>
  async ({ unopened, ...input }: SealTrialInput): Promise<void> => {
    try {
      await sealAttempt(deps.db, await withWait(deps, input));
    } catch (error) {
      // The trial does not exist or is at another attempt: a retry would change neither.
      if (!(error instanceof TrialgateError)) throw error;
      if (error.code !== 'not_found' || !unopened) return;
      const { id: groupId, runId, task, agent, policyVersion } = unopened.group;
      await openAttempt(deps.db, {
        trialId: input.trialId,
        runId,
        groupId,
        trialIndex: unopened.trialIndex,
        task,
        agent,
        policyVersion,
      });
      await sealAttempt(deps.db, input);
    }
  };

/** Adds the time that the attempt's agent waited for its engine, if any of its calls took long. */
async function withWait(deps: Pick<Deps, 'db'>, input: Omit<SealTrialInput, 'unopened'>): Promise<typeof input> {
  const { trialId, attempt, seconds } = input;
  if (attempt === undefined || !(await hadLongCall(deps.db, { trialId, attempt }))) return input;
  const { seconds: waited } = await readEngineWait(deps.db, { trialId, attempt });
  return waited < 1 ? input : { ...input, seconds: { ...seconds, engine_wait: waited } };
}
