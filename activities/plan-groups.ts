import { ApplicationFailure } from '@temporalio/common';
import { and, asc, count, eq, isNull, sql } from 'drizzle-orm';
import type { Transaction } from '../store/queries/transaction.ts';
import { groups, iterations, quarantinedTasks, runs } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import type { GroupPlan } from './group-plan.ts';
import { readRun } from './read-run.ts';
import { requireOpenTake } from './require-open-take.ts';
import { capacity } from './rollout/capacity.ts';
import { readLineage } from './rollout/lineage.ts';
import { isLive } from './rollout/live.ts';
import { planOf } from './rollout/plan-of.ts';
import { refuseMostFailed } from './rollout/refuse-most-failed.ts';
import { reopenUnfinished } from './rollout/reopen-unfinished.ts';
import { taskAt } from './rollout/walk.ts';
import type { RunConfig } from './run-config.ts';
import { listTasks } from './tasks/list-tasks.ts';

export type TakeInput = { runId: string; iteration: number; take: number; policyVersion: number };
export type Rollout = {
  /** Groups that should run now, whichever iteration began them. */
  open: GroupPlan[];
  /** Groups whose samples no step may use any more: to be cut. */
  stale: string[];
  /** Groups that a batch may be made of, and how many it is made of. */
  eligible: number;
  wanted: number;
  /** Whether the step may be made: its groups are there, and none runs that only this step could use. */
  isReady: boolean;
};

/**
 * Starts as many groups as rule 10 leaves room for, by writing their rows: whoever asks next finds them. `reopen`: groups of this take
 * with trials that nobody finished run again, after what failed them was mended.
 */
export const planGroups =
  (deps: Pick<Deps, 'db'>) =>
  async (input: TakeInput & { reopen?: boolean }): Promise<Rollout> => {
    const { runId, iteration, take, policyVersion } = input;
    const config = await readRun(deps.db, runId);
    const tasks = await listTasks(config.tasks);
    const { groups_per_iteration: batch, max_staleness: maxStaleness } = config;
    return deps.db.transaction(async (tx) => {
      await tx.select({ id: runs.id }).from(runs).where(eq(runs.id, runId)).for('update');
      const here = and(eq(iterations.runId, runId), eq(iterations.iteration, iteration), eq(iterations.take, take));
      const [row] = await tx.select({ status: iterations.status }).from(iterations).where(here);
      requireOpenTake(row, `${iteration}.${take}`);
      if (input.reopen) await reopenUnfinished(tx, input);
      else await refuseMostFailed(tx, input, config.group_size);
      const ages = await readLineage(tx, { runId, version: policyVersion, limit: maxStaleness });
      const live = and(eq(groups.runId, runId), eq(groups.kind, 'train'), isNull(groups.dropped), isLive(groups));
      const consumed = isLive({ runId: groups.runId, iteration: groups.batchIteration, take: groups.batchTake });
      const waiting = await tx.select().from(groups).where(and(live, sql`not ${consumed}`)).orderBy(asc(groups.iteration), asc(groups.ordinal));
      const stale = waiting.filter((group) => !ages.has(group.policyVersion));
      for (const { id } of stale) await tx.update(groups).set({ dropped: 'stale' }).where(eq(groups.id, id));
      const usable = waiting.filter((group) => ages.has(group.policyVersion));
      const open = usable.filter((group) => group.endedAt === null);
      const eligible = usable.length - open.length;
      const [made] = await tx.select({ groups: count() }).from(groups).where(and(live, consumed));
      const accepted = (made?.groups ?? 0) + eligible;
      const room = capacity({ running: open.length, accepted, version: iteration, iterations: config.iterations, batch, maxStaleness, maxConcurrent: config.max_concurrent_groups });
      const started = await start(tx, config, tasks, input, room);
      const running = [...open, ...started];
      // A step makes everything older by one: what only this one could use is waited for, unless stragglers are let go of.
      const lastChance = config.stragglers === 'wait' && running.some((group) => (ages.get(group.policyVersion) ?? 0) >= maxStaleness);
      const isReady = running.length === 0 || (eligible >= batch && !lastChance);
      return {
        open: running.map(planOf),
        stale: stale.flatMap(({ id, endedAt }) => (endedAt === null ? [id] : [])),
        eligible,
        wanted: batch,
        isReady,
      };
    });
  };

async function start(tx: Transaction, config: RunConfig, tasks: string[], input: TakeInput, room: number) {
  if (room === 0) return [];
  const { runId, iteration, take, policyVersion } = input;
  const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'));
  const [before] = await tx.select({ groups: count() }).from(groups).where(and(ofRun, isLive(groups)));
  const [here] = await tx.select({ groups: count() }).from(groups).where(and(ofRun, eq(groups.iteration, iteration), eq(groups.take, take)));
  const quarantined = await tx.select({ task: quarantinedTasks.task }).from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId));
  const out = new Set(quarantined.map((row) => row.task));
  const values = Array.from({ length: room }, (_, i) => {
    const position = (before?.groups ?? 0) + i;
    const task = taskAt(tasks, position, config.seed, out);
    if (task === null) throw allQuarantined(runId, out.size);
    const ordinal = (here?.groups ?? 0) + i;
    const agent = config.agents[position % config.agents.length] ?? '';
    const size = config.group_size + config.over_sampling;
    return { id: `${runId}/${iteration}.${take}/${ordinal}`, runId, kind: 'train' as const, iteration, take, ordinal, task, agent, size, policyVersion };
  });
  return tx.insert(groups).values(values).returning();
}

const allQuarantined = (runId: string, tasks: number) =>
  ApplicationFailure.create({
    type: 'all_quarantined',
    message: `all ${tasks} tasks of run ${runId} are quarantined: "trialgate show ${runId}" says why; mend them, then resume`,
    nonRetryable: true,
  });
