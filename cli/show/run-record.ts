import { and, asc, count, eq, inArray, type SQL } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { unknownRun } from '../../activities/run/unknown-run.ts';
import { isPass } from '../../core/pass.ts';
import { passAtK } from '../../core/pass-at-k.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import type { Database } from '../../store/database.ts';
import {
  attempts,
  batches,
  calls,
  groups,
  iterations,
  policyVersions,
  publications,
  quarantinedTasks,
  runs,
  trials,
  type DropReason,
  type Outcome,
} from '../../store/schema.ts';
import { statisticsOf, tally, type RewardStatistics } from './statistics.ts';

export type Summary = {
  groups: number;
  /** The number of groups that are left out of every batch, by reason. */
  dropped: Partial<Record<DropReason, number>>;
  /** The number of groups whose trials all have the same reward. Their advantages are 0, so a step learns nothing from them. */
  equal_groups: number;
  /** The number of groups without any reward: each of their trials failed or has not ended. A step learns nothing from them either. */
  unrewarded_groups: number;
  trials: Partial<Record<Outcome | 'open', number>>;
  /** The number of attempts that failed and were run again. */
  repeated_attempts: number;
  reward: RewardStatistics | null;
  /** The number of completed calls, and of each continuation. */
  calls: { completed: number; clean: number; drifted: number; branched: number };
  /** The share of rewarded trials with a reward of 1 or more. */
  pass_rate: number | null;
};

export type RunRecord = {
  run: string;
  status: string;
  reason: string | null;
  created_at: string;
  ended_at: string | null;
  /** The policy version `{run}@{version}` that is this run's version 0. */
  forked_from: string | null;
  /** The take `{run}/{iteration}.{take}` whose batch this run trains on again. */
  rescores: string | null;
  evaluations: (Summary & {
    /** `eval@{version}`, or `eval@{version}.{n}` for an evaluation on demand. */
    id: string;
    policy_version: number;
    /** For each k, the probability that at least one of k trials of a task has a reward of 1 or more. */
    pass_at: Record<string, number>;
    seconds: number | null;
  })[];
  iterations: (Summary & {
    iteration: number;
    take: number;
    status: string;
    policy_version: number;
    trained_version: number | null;
    /** A trial whose conversation never branches has one sample. */
    batch: { sha256: string; samples: number; trials: number; metrics: Record<string, number> } | null;
    /** `pruned_at`: when it was removed because the run had completed. */
    checkpoint: { path: string; sha256: string; pruned_at: string | null } | null;
    replicas: {
      replica: string;
      weight_version: string;
      checksum: string;
      canary_difference: number;
      confirmed_at: string;
    }[];
    metrics: Record<string, number>;
    /** The reason why the step made no update, or null if it made one. */
    skipped: string | null;
    seconds: Record<string, number>;
  })[];
  quarantined: { task: string; reason: string; at: string }[];
  config: unknown;
};

/**
 * Reads the record that `show RUN --json` prints. docs/show.md documents its format.
 * @param only the groups that are counted; absent: all of the run
 */
export async function readRunRecord(db: Database, runId: string, only?: SQL): Promise<RunRecord> {
  const [run] = await db.select().from(runs).where(eq(runs.id, runId));
  if (!run) throw await unknownRun(db, runId);
  const { reward_weights: weights } = await readRun(db, runId);
  const counted =
    only &&
    db
      .select({ id: groups.id })
      .from(groups)
      .where(and(eq(groups.runId, runId), only));
  const ofCounted = counted && inArray(trials.groupId, counted);
  const [takes, versions, confirmed, files, quarantined, trialRows, tried, callCounts] = await Promise.all([
    db
      .select()
      .from(iterations)
      .where(eq(iterations.runId, runId))
      .orderBy(asc(iterations.iteration), asc(iterations.take)),
    db.select().from(policyVersions).where(eq(policyVersions.runId, runId)),
    db.select().from(publications).where(eq(publications.runId, runId)),
    db.select().from(batches).where(eq(batches.runId, runId)),
    db.select().from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId)).orderBy(asc(quarantinedTasks.at)),
    db
      .select({ group: groups, trial: trials })
      .from(groups)
      .leftJoin(trials, eq(trials.groupId, groups.id))
      .where(and(eq(groups.runId, runId), only)),
    db
      .select({ trialId: attempts.trialId, outcome: attempts.outcome })
      .from(attempts)
      .innerJoin(trials, eq(trials.id, attempts.trialId))
      .where(and(eq(trials.runId, runId), ofCounted))
      .orderBy(asc(attempts.attempt)),
    db
      .select({ groupId: trials.groupId, continuation: calls.continuation, calls: count() })
      .from(calls)
      .innerJoin(trials, and(eq(trials.id, calls.trialId), eq(trials.attempt, calls.attempt)))
      .where(and(eq(trials.runId, runId), eq(calls.status, 'completed'), ofCounted))
      .groupBy(trials.groupId, calls.continuation),
  ]);
  const attemptsOf = tally(tried.map((row) => row.trialId));
  // A trial that no attempt finished has no outcome, so that a resumed run tries it again.
  const lastOutcome = new Map(tried.map((row) => [row.trialId, row.outcome]));

  const summaryOf = (rows: typeof trialRows): Summary => {
    const present = rows.flatMap(({ trial }) =>
      trial ? [{ ...trial, outcome: trial.outcome ?? lastOutcome.get(trial.id) ?? ('open' as const) }] : [],
    );
    const rewarded = present.flatMap(({ groupId, rewards: named }) =>
      named ? [{ groupId, reward: weightedReward(named, weights) }] : [],
    );
    const rewards = rewarded.map(({ reward }) => reward);
    const rewardsByGroup = [...Map.groupBy(rewarded, ({ groupId }) => groupId).values()];
    const own = new Map(rows.map(({ group }) => [group.id, group]));
    const ids = new Set(own.keys());
    const ours = callCounts.filter(({ groupId }) => groupId !== null && ids.has(groupId));
    const callsThat = (which: (continuation: string | null) => boolean) =>
      ours.filter(({ continuation }) => which(continuation)).reduce((sum, row) => sum + row.calls, 0);
    return {
      groups: ids.size,
      equal_groups: rewardsByGroup.filter((ofGroup) => new Set(ofGroup.map(({ reward }) => reward)).size === 1).length,
      unrewarded_groups: ids.size - rewardsByGroup.length,
      dropped: tally([...own.values()].flatMap(({ dropped }) => dropped ?? [])),
      trials: tally(present.map(({ outcome }) => outcome)),
      repeated_attempts: present.reduce((sum, { id }) => sum + Math.max(0, (attemptsOf[id] ?? 1) - 1), 0),
      reward: statisticsOf(rewards),
      calls: {
        completed: callsThat(() => true),
        clean: callsThat((continuation) => continuation === 'clean'),
        drifted: callsThat((continuation) => continuation === 'drifted'),
        branched: callsThat((continuation) => continuation === 'branched'),
      },
      pass_rate: rewards.length ? rewards.filter(isPass).length / rewards.length : null,
    };
  };
  const passedBy = (rows: typeof trialRows) =>
    Object.values(Object.groupBy(rows, ({ group }) => group.task)).map((ofTask = []) => {
      const rewards = ofTask.flatMap(({ trial }) => (trial?.rewards ? [weightedReward(trial.rewards, weights)] : []));
      return { trials: rewards.length, passed: rewards.filter(isPass).length };
    });
  const evaluated = Object.entries(
    Object.groupBy(
      trialRows.filter(({ group }) => group.kind === 'eval'),
      ({ group }) => evaluationOf(runId, group.id),
    ),
  );

  return {
    run: run.id,
    status: run.status,
    reason: run.reason,
    created_at: run.createdAt.toISOString(),
    ended_at: run.endedAt?.toISOString() ?? null,
    forked_from: run.forkedFrom,
    rescores: run.rescores,
    evaluations: evaluated
      .toSorted(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }))
      .map(([id, rows = []]) => {
        const version = rows[0]?.group.policyVersion ?? 0;
        return {
          id,
          policy_version: version,
          ...summaryOf(rows),
          pass_at: passAtK(passedBy(rows)),
          seconds: spanOf(rows.map(({ group }) => group)),
        };
      }),
    iterations: takes.map((row) => {
      const { iteration, take } = row;
      const version = versions.find((each) => each.iteration === iteration && each.take === take);
      const batch = files.find((each) => each.iteration === iteration && each.take === take);
      return {
        iteration,
        take,
        status: row.status,
        policy_version: row.policyVersion,
        trained_version: version?.version ?? null,
        ...summaryOf(trialRows.filter(({ group }) => group.iteration === iteration && group.take === take)),
        batch: batch
          ? { sha256: batch.sha256, samples: batch.samples, trials: batch.trials, metrics: batch.metrics }
          : null,
        checkpoint: version
          ? {
              path: version.checkpoint,
              sha256: version.checkpointSha256,
              pruned_at: version.prunedAt?.toISOString() ?? null,
            }
          : null,
        replicas: confirmed
          .filter((each) => each.version === version?.version)
          .map(({ replica, weightVersion, checksum, canaryDifference, confirmedAt }) => ({
            replica,
            weight_version: weightVersion,
            checksum,
            canary_difference: canaryDifference,
            confirmed_at: confirmedAt.toISOString(),
          })),
        metrics: version?.metrics ?? {},
        skipped: version?.skipped ?? null,
        seconds: row.seconds,
      };
    }),
    quarantined: quarantined.map(({ task, reason, at }) => ({ task, reason, at: at.toISOString() })),
    config: run.config,
  };
}

/** Returns the id of a group's evaluation. The group's id is `{run}/{evaluation}/{ordinal}`. */
const evaluationOf = (runId: string, groupId: string): string =>
  groupId.slice(runId.length + 1, groupId.lastIndexOf('/'));

function spanOf(rows: { openedAt: Date; endedAt: Date | null }[]): number | null {
  if (rows.some((row) => row.endedAt === null)) return null;
  const start = Math.min(...rows.map((row) => row.openedAt.getTime()));
  return (Math.max(...rows.map((row) => row.endedAt?.getTime() ?? 0)) - start) / 1000;
}
