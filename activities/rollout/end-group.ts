import { and, count, desc, eq, inArray, isNotNull, isNull, ne } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { groups, quarantinedTasks, type DropReason } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { readRun } from '../run/read-run.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import { commonReason, isFailure, readGroupTrials, type GroupTrial } from './group-trials.ts';
import { rewardsOf } from './rewards-of.ts';
import { EXTERNAL_AGENT } from '../../core/run-config/rollouts.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

type Group = typeof groups.$inferSelect;

/**
 * Ends a group and decides whether a batch may use it, unless it was cut with its run. A task whose groups keep failing goes into
 * quarantine. `runsOn` means that some of its trials still run. Returns true when the group waits for them, because a batch can use the
 * group only with their rewards.
 */
export const endGroup =
  (deps: Pick<Deps, 'db'>) =>
  async (input: { id: string; isCut?: boolean; runsOn?: boolean }): Promise<boolean> =>
    deps.db.transaction(async (tx) => {
      const [group] = await tx
        .select()
        .from(groups)
        .where(and(eq(groups.id, input.id), isNull(groups.endedAt)))
        .for('update');
      if (!group) return false;
      const config = await readRun(tx, group.runId);
      const trials = await readGroupTrials(tx, eq(groups.id, group.id));
      const dropped = group.dropped ?? (input.isCut ? null : await verdict(tx, group, trials, config));
      if (input.runsOn && dropped !== null) return true;
      await tx.update(groups).set({ endedAt: new Date(), dropped }).where(eq(groups.id, group.id));
      // An outside program chooses its tasks itself.
      if (dropped === 'failed' && group.agent !== EXTERNAL_AGENT) await quarantine(tx, group, trials, config);
      return false;
    });

async function verdict(
  tx: Transaction,
  group: Group,
  trials: GroupTrial[],
  config: RunConfig,
): Promise<DropReason | null> {
  if (group.kind === 'eval') return null;
  const valid = trials.filter((trial) => rewardsOf(trial, config) !== null);
  // A trial that no host opened has no row.
  if (valid.length === 0) return trials.some(isFailure) || trials.length < group.size ? 'failed' : null;
  const rewards = new Set(valid.map((trial) => weightedReward(rewardsOf(trial, config) ?? {}, config.reward_weights)));
  if (!config.filter_groups.enable || rewards.size > 1) return null;
  const sameTake = and(
    eq(groups.runId, group.runId),
    eq(groups.iteration, group.iteration ?? 0),
    eq(groups.take, group.take ?? 0),
  );
  const [replaced] = await tx
    .select({ groups: count() })
    .from(groups)
    .where(and(sameTake, eq(groups.dropped, 'no_spread')));
  return (replaced?.groups ?? 0) < config.filter_groups.max_replaced ? 'no_spread' : null;
}

/** Quarantines a task after several failed groups. When other tasks' groups fail too, the cause is the host and not the task. */
async function quarantine(tx: Transaction, group: Group, trials: GroupTrial[], config: RunConfig): Promise<void> {
  const { runId, task } = group;
  const after = config.quarantine_after;
  const ended = and(eq(groups.runId, runId), eq(groups.kind, 'train'), isNotNull(groups.endedAt));
  const last = await tx
    .select()
    .from(groups)
    .where(and(ended, eq(groups.task, task)))
    .orderBy(desc(groups.endedAt))
    .limit(after);
  if (last.length < after || last.some((each) => each.dropped !== 'failed')) return;
  const others = await tx
    .select({ id: groups.id })
    .from(groups)
    .where(and(ended, ne(groups.task, task)))
    .orderBy(desc(groups.endedAt))
    .limit(8);
  const elsewhere =
    others.length > 0
      ? await readGroupTrials(
          tx,
          inArray(
            groups.id,
            others.map(({ id }) => id),
          ),
        )
      : [];
  const isOwn =
    (trials.length > 0 && trials.every(({ outcome }) => outcome === 'verifier_error')) ||
    elsewhere.some((trial) => rewardsOf(trial, config) !== null);
  if (isOwn)
    await tx
      .insert(quarantinedTasks)
      .values({ runId, task, reason: `${after} groups in a row failed: ${commonReason(trials)}` })
      .onConflictDoNothing();
}
