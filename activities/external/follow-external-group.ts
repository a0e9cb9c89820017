import { isDeepStrictEqual } from 'node:util';
import { heartbeat, sleep } from '@temporalio/activity';
import { and, asc, eq } from 'drizzle-orm';
import { attempts, trials, type Outcome } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';

/** A trial's index and current attempt, and whether a program has claimed that, or how the trial ended. */
export type ExternalTrialState = [
  trialIndex: number,
  attempt: number,
  state: 'ended' | 'unclaimed' | 'claimed' | Outcome,
];

const POLL = '1s';
/** Without a change it returns after this time, so that no timeout of the activity is needed. */
const LONGEST_MS = 300_000;

/** Waits until a program has claimed or ended any trial of the group, and returns the state of each trial. `seen` is what the caller knows. */
export const followExternalGroup =
  (deps: Pick<Deps, 'db'>) =>
  async ({ groupId, seen }: { groupId: string; seen: ExternalTrialState[] }): Promise<ExternalTrialState[]> => {
    for (const start = Date.now(); ;) {
      const states = await readStates(deps, groupId);
      if (!isDeepStrictEqual(states, seen) || Date.now() - start > LONGEST_MS) return states;
      heartbeat();
      await sleep(POLL);
    }
  };

async function readStates({ db }: Pick<Deps, 'db'>, groupId: string): Promise<ExternalTrialState[]> {
  const rows = await db
    .select({
      outcome: trials.outcome,
      index: trials.trialIndex,
      attempt: trials.attempt,
      claimedAt: attempts.claimedAt,
      endedAt: attempts.endedAt,
    })
    .from(trials)
    .innerJoin(attempts, and(eq(attempts.trialId, trials.id), eq(attempts.attempt, trials.attempt)))
    .where(eq(trials.groupId, groupId))
    .orderBy(asc(trials.trialIndex));
  return rows.map(({ outcome, index, attempt, claimedAt, endedAt }) => [
    index ?? 0,
    attempt,
    outcome ?? (endedAt !== null ? 'ended' : claimedAt === null ? 'unclaimed' : 'claimed'),
  ]);
}
