import { and, asc, eq, isNotNull, isNull, or, sql } from 'drizzle-orm';
import { isCurrentAttempt } from '../../store/queries/current-attempt.ts';
import type { Executor } from '../../store/queries/transaction.ts';
import { attempts, calls, groups, trials } from '../../store/schema.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { rewardsOf } from './rewards-of.ts';
import { batchOf, isLive } from '../../store/queries/takes.ts';

export type CandidateTrial = {
  id: string;
  trialIndex: number;
  isRunning: boolean;
  /** True when the trial has an outcome and is not tried again. */
  isFinal: boolean;
  /** True when the trial has ended with a reward and is no older than the run allows. */
  isUsable: boolean;
  /** The steps since its first token was sampled; null when there is no token yet, or when it is older than the run allows. */
  age: number | null;
  isTooOld: boolean;
};
export type Candidate = {
  group: typeof groups.$inferSelect;
  /** True when a batch has the group, so that only its stragglers are left. */
  isTaken: boolean;
  trials: CandidateTrial[];
};

/** Returns what later steps may use, the oldest first: groups that no batch has, and stragglers that their group's batch did not wait for. */
export async function readCandidates(
  db: Executor,
  config: RunConfig,
  runId: string,
  ages: ReadonlyMap<number, number>,
): Promise<Candidate[]> {
  const isTaken = isLive(batchOf(groups));
  const isUsed = isLive(batchOf(trials));
  const first = sql<
    number | null
  >`(select first.policy_version from ${calls} as first where first.trial_id = ${trials.id} and first.attempt = ${trials.attempt} and first.status = 'completed' order by first.seq limit 1)`;
  const rows = await db
    .select({
      group: groups,
      isTaken,
      trial: trials,
      firstVersion: first,
      openedAt: attempts.openedAt,
      endedAt: attempts.endedAt,
    })
    .from(groups)
    .leftJoin(trials, and(eq(trials.groupId, groups.id), sql`not ${isUsed}`))
    .leftJoin(attempts, isCurrentAttempt)
    .where(
      and(
        eq(groups.runId, runId),
        eq(groups.kind, 'train'),
        isNull(groups.dropped),
        isLive(groups),
        or(sql`not ${isTaken}`, isNotNull(trials.id)),
      ),
    )
    .orderBy(asc(groups.iteration), asc(groups.ordinal), asc(trials.trialIndex));
  const candidates = new Map<string, Candidate>();
  for (const { group, isTaken: taken, trial, firstVersion, openedAt, endedAt } of rows) {
    const candidate = candidates.get(group.id) ?? { group, isTaken: taken, trials: [] };
    candidates.set(group.id, candidate);
    if (!trial || trial.trialIndex === null) continue;
    const age = firstVersion === null ? null : (ages.get(firstVersion) ?? null);
    const isTooOld = firstVersion !== null && age === null;
    // A trial whose workflow was ended from outside never gets an outcome.
    const isOrphan = openedAt !== null && Date.now() - openedAt.getTime() > 2000 * config.deadlines.group + 3_600_000;
    const isRunning = trial.outcome === null && endedAt === null && !isOrphan;
    candidate.trials.push({
      id: trial.id,
      trialIndex: trial.trialIndex,
      isRunning,
      isFinal: trial.outcome !== null,
      isUsable: rewardsOf(trial, config) !== null && !isTooOld,
      age,
      isTooOld,
    });
  }
  return [...candidates.values()];
}

/**
 * The numbers of a group's trials that wait for a sandbox, run and have ended, and its deadline in milliseconds since the epoch once it
 * has one. A tuple, because every poll adds that of every group to the run's history.
 */
export type GroupProgress = [waiting: number, running: number, ended: number, deadline: number | null];

export function groupProgress({ group, trials: all }: Pick<Candidate, 'group' | 'trials'>): GroupProgress {
  const ended = all.filter(({ isFinal }) => isFinal).length;
  const run = all.filter(({ isRunning }) => isRunning).length;
  const deadline = group.deadlineAt?.getTime() ?? null;
  return [group.size - run - ended, run, ended, deadline];
}

export const usable = (candidate: Candidate): number => candidate.trials.filter(({ isUsable }) => isUsable).length;

/** Returns the number of trials that may still become usable: what an open group lacks, or the stragglers of an ended one. */
export function running(candidate: Candidate, config: RunConfig): number {
  const all = unfinished(candidate);
  return candidate.group.endedAt === null ? Math.min(all, Math.max(0, groupTrials(config) - usable(candidate))) : all;
}

/** Returns the number of trials that have a slot or wait for one, including those that will be cut. */
export const unfinished = ({ group, trials: all }: Candidate): number =>
  group.endedAt === null
    ? group.size - all.filter(({ isFinal }) => isFinal).length
    : all.filter(({ isRunning }) => isRunning).length;

/**
 * Returns true when a batch may use the group: when it has ended, or when some of its trials would be too old for the next step and the
 * others may be carried over. A group of one trial has no baseline.
 */
export function isOffered(candidate: Candidate, { stragglers, max_staleness: limit }: RunConfig): boolean {
  if (candidate.isTaken) return usable(candidate) > 0;
  if (candidate.group.endedAt !== null) return true;
  return (
    stragglers === 'carry_over' &&
    usable(candidate) >= 2 &&
    candidate.trials.some(({ isUsable, age }) => isUsable && age === limit)
  );
}

/** Returns the number of trials of a batch: the trials that a group ends with, times the groups of an iteration. */
export const batchTrials = (config: RunConfig): number => config.groups_per_iteration * groupTrials(config);

/** Returns the number of trials that a group starts with. */
export const startedTrials = ({ group_size: size, over_sampling: more }: RunConfig): number => size + more;

export const groupTrials = ({ group_size: size, group_quorum: quorum, stragglers }: RunConfig): number =>
  stragglers === 'cancel' ? (quorum ?? size) : size;
