import { ApplicationFailure } from '@temporalio/common';
import { and, count, eq } from 'drizzle-orm';
import type { Transaction } from '../store/queries/transaction.ts';
import { groups, iterations, quarantinedTasks, runs } from '../store/schema.ts';
import type { Deps } from './deps.ts';
import type { GroupPlan } from './group-plan.ts';
import { readRun } from './read-run.ts';
import { requireOpenTake } from './require-open-take.ts';
import { batchTrials, groupTrials, isOffered, readCandidates, running, standing, startedTrials, unfinished, usable, type Candidate, type Standing } from './rollout/candidates.ts';
import { readLineage } from './rollout/lineage.ts';
import { isLive, ofTake, type TakeKey } from './rollout/takes.ts';
import { planOf } from './rollout/plan-of.ts';
import { refuseMostFailed } from './rollout/refuse-most-failed.ts';
import { hasBatch, reopenUnfinished } from './rollout/reopen-unfinished.ts';
import { room } from './rollout/room.ts';
import { taskAt } from './rollout/walk.ts';
import type { RunConfig } from './run-config.ts';
import { listTasks } from './tasks/list-tasks.ts';

export type TakeInput = TakeKey & { policyVersion: number };
export type Rollout = {
  /** Groups that should run now, whichever iteration began them. */
  open: string[];
  /** How each of `open` stands. */
  standings?: Standing[];
  /** What they are started with; of those alone that began just now, if the others are known. */
  plans: GroupPlan[];
  /** Those that no later step can use. */
  last: string[];
  /** Groups that have ended but for their stragglers. */
  outlived: string[];
  /** Trials that no step may use any more: to be cut. */
  stale: { id: string; members: number[] }[];
  /** Trials that a batch may be made of, and how many it is made of. */
  eligible: number;
  wanted: number;
  /** Trials that the step would make too old, if it waits for them: more than it may lose. Their groups may have ended. */
  waitsForLast?: number;
  /** Whether the step may be made: its trials are there, and none runs that only this step could use, or no more than may be lost. */
  isReady: boolean;
};

/**
 * Starts as many groups as there is room for, by writing their rows: whoever asks next finds them. `reopen`: groups of this take with
 * trials that nobody finished run again, after what failed them was mended.
 */
export const planGroups =
  (deps: Pick<Deps, 'db'>) =>
  async (input: TakeInput & { reopen?: boolean; known?: boolean; isOver?: boolean }): Promise<Rollout> => {
    const { runId, iteration, take, policyVersion } = input;
    const config = await readRun(deps.db, runId);
    const { max_staleness: maxStaleness } = config;
    return deps.db.transaction(async (tx) => {
      await tx.select({ id: runs.id }).from(runs).where(eq(runs.id, runId)).for('update');
      const [row] = await tx.select({ status: iterations.status }).from(iterations).where(ofTake(iterations, input));
      requireOpenTake(row, `${iteration}.${take}`);
      if (input.reopen) await reopenUnfinished(tx, input);
      else await refuseMostFailed(tx, input, config.group_size);
      const isMade = await hasBatch(tx, input);
      const ages = await readLineage(tx, { runId, version: policyVersion, limit: maxStaleness });
      const candidates = await dropStale(tx, await readCandidates(tx, config, runId, ages));
      const open = candidates.filter(({ group }) => group.endedAt === null);
      const offered = candidates.filter((candidate) => isOffered(candidate, config));
      const eligible = sum(offered.map(usable));
      const wanted = batchTrials(config);
      const runningTrials = sum(candidates.map(unfinished));
      const live = sum(candidates.map((candidate) => usable(candidate) + running(candidate, config)));
      const stepsLeft = config.iterations - iteration;
      const { max_concurrent_groups: maxConcurrent, max_concurrent_trials: places } = config;
      const startsWith = startedTrials(config);
      const more = isMade || input.isOver ? 0 : room({ live, runningGroups: open.length, groupTrials: groupTrials(config), batchTrials: wanted, stepsLeft, maxStaleness, maxConcurrent, startedTrials: startsWith, runningTrials, maxConcurrentTrials: places });
      const started = await start(tx, config, input, more);
      // A step makes everything older by one: what only this one could use is waited for, unless stragglers are let go of, all or so many.
      const isLast = (candidate: Candidate) => maxStaleness === 0 || candidate.members.some(({ isRunning, isUsable, age }) => (isRunning || isUsable) && age === maxStaleness);
      const last = open.filter(isLast).map(({ group }) => group.id);
      const idle = Math.max(0, (places ?? 0) - runningTrials - started.length * startsWith);
      const lost = wouldCut(candidates, maxStaleness);
      const losesTooMany = config.stragglers !== 'wait' && !input.isOver && lost > (config.max_stale_stragglers ?? Infinity) + idle;
      const mustWait = config.stragglers === 'wait' ? last.length > 0 : losesTooMany;
      const underWay = open.length + started.length;
      return {
        open: [...open.map(({ group }) => group.id), ...started.map(({ id }) => id)],
        standings: [...open.map(standing), ...started.map((group) => standing({ group, members: [] }))],
        plans: [...(input.known ? [] : open.map(({ group }) => group)), ...started].map(planOf),
        last,
        outlived: candidates.filter((candidate) => candidate.group.endedAt !== null && running(candidate, config) > 0).map(({ group }) => group.id),
        stale: candidates.flatMap(tooOld),
        eligible,
        wanted,
        waitsForLast: losesTooMany ? lost : 0,
        isReady: isMade || (!mustWait && (underWay === 0 || eligible >= wanted)),
      };
    });
  };

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function tooOld({ group, members }: Candidate): Rollout['stale'] {
  const stale = members.filter(({ isRunning, isTooOld }) => isRunning && isTooOld).map(({ member }) => member);
  return stale.length > 0 ? [{ id: group.id, members: stale }] : [];
}

/** Running trials that only the next step could use. */
const wouldCut = (candidates: Candidate[], limit: number): number =>
  sum(candidates.map(({ members }) => members.filter(({ isRunning, age }) => isRunning && age === limit).length));

/** A group of which nothing may be trained on any more leaves the run's account. */
async function dropStale(tx: Transaction, candidates: Candidate[]): Promise<Candidate[]> {
  const isStale = (candidate: Candidate) =>
    !candidate.isTaken && candidate.group.endedAt !== null && usable(candidate) === 0 && !candidate.members.some(({ isRunning }) => isRunning) && candidate.members.some(({ isTooOld }) => isTooOld);
  const stale = candidates.filter(isStale);
  for (const { group } of stale) await tx.update(groups).set({ dropped: 'stale' }).where(eq(groups.id, group.id));
  return candidates.filter((candidate) => !isStale(candidate));
}

async function start(tx: Transaction, config: RunConfig, input: TakeInput, more: number) {
  if (more === 0) return [];
  const tasks = await listTasks(config.tasks);
  const { runId, iteration, take, policyVersion } = input;
  const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'));
  const [before] = await tx.select({ groups: count() }).from(groups).where(and(ofRun, isLive(groups)));
  const [here] = await tx.select({ groups: count() }).from(groups).where(and(eq(groups.kind, 'train'), ofTake(groups, input)));
  const quarantined = await tx.select({ task: quarantinedTasks.task }).from(quarantinedTasks).where(eq(quarantinedTasks.runId, runId));
  const out = new Set(quarantined.map((row) => row.task));
  const values = Array.from({ length: more }, (_, i) => {
    const position = (before?.groups ?? 0) + i;
    const task = taskAt(tasks, position, config.seed, out);
    if (task === null) throw allQuarantined(runId, out.size);
    const ordinal = (here?.groups ?? 0) + i;
    const agent = config.agents[position % config.agents.length] ?? '';
    const size = startedTrials(config);
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
