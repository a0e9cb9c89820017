import { isDeepStrictEqual } from 'node:util';
import { heartbeat, sleep } from '@temporalio/activity';
import { asc, eq } from 'drizzle-orm';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import { attempts, groups, trials, type Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';

/** The state of a group that a program outside runs. */
export type ExternalGroupState = {
  isClaimed: boolean;
  /** The outcome of each trial, by its index; null while the trial has not ended. */
  outcomes: (Outcome | null)[];
};

const POLL = '1s';

/** Waits until a program has claimed the group or ended a trial of it. `seen` is what the caller knows. */
export const followExternalGroup =
  (deps: Pick<Deps, 'db'>) =>
  async ({ groupId, seen }: { groupId: string; seen: ExternalGroupState }): Promise<ExternalGroupState> => {
    for (;;) {
      const state = await readState(deps, groupId);
      if (!isDeepStrictEqual(state, seen)) return state;
      heartbeat();
      await sleep(POLL);
    }
  };

async function readState({ db }: Pick<Deps, 'db'>, groupId: string): Promise<ExternalGroupState> {
  const rows = await db
    .select({ claim: groups.claim, outcome: trials.outcome, endedAt: attempts.endedAt })
    .from(groups)
    .innerJoin(trials, eq(trials.groupId, groups.id))
    .leftJoin(attempts, isCurrentAttempt)
    .where(eq(groups.id, groupId))
    .orderBy(asc(trials.trialIndex));
  return {
    isClaimed: rows.some(({ claim }) => claim !== null),
    outcomes: rows.map(({ outcome, endedAt }) => outcome ?? (endedAt === null ? null : 'cancelled')),
  };
}
