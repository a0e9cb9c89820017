import { agentInTurn } from '../../core/run-config/agent-file.ts';
import { ApplicationFailure } from '@temporalio/common';
import { and, count, eq } from 'drizzle-orm';
import type { Transaction } from '../../store/queries/transaction.ts';
import { groups, iterations, quarantinedTasks, runs } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import { planOf, type GroupPlan } from './group-plan.ts';
import { commonReason, countOutcomes, readGroupTrials } from './group-trials.ts';
import { readRun } from '../run/read-run.ts';
import { requireOpenTake } from '../iteration/require-open-take.ts';
import {
  batchTrials,
  groupTrials,
  isOffered,
  readCandidates,
  running,
  groupProgress,
  startedTrials,
  unfinished,
  usable,
  type Candidate,
  type GroupProgress,
} from './candidates.ts';
import { readLineage } from '../iteration/lineage.ts';
import { isLive, ofTake, type TakeKey } from '../../store/queries/takes.ts';
import { refuseMostFailed } from './refuse-most-failed.ts';
import { hasBatch, reopenUnfinished } from './reopen-unfinished.ts';
import { startableGroups } from './startable-groups.ts';
import { taskOrder } from './task-order.ts';
import { EXTERNAL_AGENT, UNCLAIMED_TASK } from '../../core/run-config/rollouts.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { listSources } from '../tasks/list-tasks.ts';

export type TakeInput = TakeKey & { policyVersion: number };
export type Rollout = {
  /** The groups that should run now, whichever iteration began them. */
  open: string[];
  /** The progress of each group of `open`. */
  progress: GroupProgress[];
  /** The plans of the open groups; when the caller knows the others, only of those that began just now. */
  plans: GroupPlan[];
  /** The open groups that no later step can use. */
  last: string[];
  /** The groups that have ended except for their stragglers. */
  outlived: string[];
  /** The running trials that no step may use any more. They are to be cut. */
  stale: { id: string; trialIndexes: number[] }[];
  /** The number of trials that a batch may use now, and the number that it is made of. */
  eligible: number;
  wanted: number;
  /** The number of running trials that the step would make stale, when that is more than it may lose. Their groups may have ended. */
  waitsForLast?: number;
  /** True when the step can be made: its trials are there, and at most as many running trials as may be lost could be used only by this step. */
  isReady: boolean;
};

/**
 * Starts as many groups as may start, by writing their rows, so that a retry finds them. `reopen` runs groups of this take with unfinished
 * trials again, after a person has repaired the cause.
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
      const { max_concurrent_groups: maxConcurrent, max_concurrent_trials: slots } = config;
      const startsWith = startedTrials(config);
      const more =
        isMade || input.isOver
          ? 0
          : startableGroups({
              live,
              runningGroups: open.length,
              groupTrials: groupTrials(config),
              batchTrials: wanted,
              stepsLeft,
              maxStaleness,
              maxConcurrent,
              startedTrials: startsWith,
              runningTrials,
              maxConcurrentTrials: slots,
            });
      const started = await start(tx, config, input, more);
      // A step makes all samples older by one. What only this step can use is waited for, unless all stragglers or so many of them may be lost.
      const isLast = (candidate: Candidate) =>
        maxStaleness === 0 ||
        candidate.trials.some(({ isRunning, isUsable, age }) => (isRunning || isUsable) && age === maxStaleness);
      const last = open.filter(isLast).map(({ group }) => group.id);
      const idle = Math.max(0, (slots ?? 0) - runningTrials - started.length * startsWith);
      const lost = wouldCut(candidates, maxStaleness);
      const losesTooMany =
        config.stragglers !== 'wait' && !input.isOver && lost > (config.max_stale_stragglers ?? Infinity) + idle;
      const mustWait = config.stragglers === 'wait' ? last.length > 0 : losesTooMany;
      const underWay = open.length + started.length;
      return {
        open: [...open.map(({ group }) => group.id), ...started.map(({ id }) => id)],
        progress: [...open.map(groupProgress), ...started.map((group) => groupProgress({ group, trials: [] }))],
        plans: [...(input.known ? [] : open.map(({ group }) => group)), ...started].map(planOf),
        last,
        outlived: candidates
          .filter((candidate) => candidate.group.endedAt !== null && running(candidate, config) > 0)
          .map(({ group }) => group.id),
        stale: candidates.flatMap(tooOld),
        eligible,
        wanted,
        waitsForLast: losesTooMany ? lost : 0,
        isReady: isMade || (!mustWait && (underWay === 0 || eligible >= wanted)),
      };
    });
  };

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

function tooOld({ group, trials }: Candidate): Rollout['stale'] {
  const stale = trials.filter(({ isRunning, isTooOld }) => isRunning && isTooOld).map(({ trialIndex }) => trialIndex);
  return stale.length > 0 ? [{ id: group.id, trialIndexes: stale }] : [];
}

/** Returns the number of running trials that only the next step could use. */
const wouldCut = (candidates: Candidate[], limit: number): number =>
  sum(candidates.map(({ trials }) => trials.filter(({ isRunning, age }) => isRunning && age === limit).length));

/** Marks ended groups as stale of which no trial can be trained on any more, and returns the other candidates. */
async function dropStale(tx: Transaction, candidates: Candidate[]): Promise<Candidate[]> {
  const isStale = (candidate: Candidate) =>
    !candidate.isTaken &&
    candidate.group.endedAt !== null &&
    usable(candidate) === 0 &&
    !candidate.trials.some(({ isRunning }) => isRunning) &&
    candidate.trials.some(({ isTooOld }) => isTooOld);
  const stale = candidates.filter(isStale);
  for (const { group } of stale) await tx.update(groups).set({ dropped: 'stale' }).where(eq(groups.id, group.id));
  return candidates.filter((candidate) => !isStale(candidate));
}

async function start(tx: Transaction, config: RunConfig, input: TakeInput, more: number) {
  if (more === 0) return [];
  const { runId, iteration, take, policyVersion } = input;
  const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'));
  const [before] = await tx
    .select({ groups: count() })
    .from(groups)
    .where(and(ofRun, isLive(groups)));
  const [here] = await tx
    .select({ groups: count() })
    .from(groups)
    .where(and(eq(groups.kind, 'train'), ofTake(groups, input)));
  const next = await workInTurn(tx, config, runId);
  const values = Array.from({ length: more }, (_, i) => {
    const ordinal = (here?.groups ?? 0) + i;
    return {
      id: `${runId}/${iteration}.${take}/${ordinal}`,
      runId,
      kind: 'train' as const,
      iteration,
      take,
      ordinal,
      ...next((before?.groups ?? 0) + i),
      size: startedTrials(config),
      policyVersion,
    };
  });
  return tx.insert(groups).values(values).returning();
}

/** Returns the task and the agent of each position in the run's order. Groups of an outside program get their task when they are claimed. */
async function workInTurn(
  tx: Transaction,
  config: RunConfig,
  runId: string,
): Promise<(position: number) => { task: string; agent: string }> {
  if (config.rollouts === 'external') return () => ({ task: UNCLAIMED_TASK, agent: EXTERNAL_AGENT });
  const sources = await listSources(tx, runId, config.tasks, config.sandbox);
  const ownAgents = new Map(sources.flatMap(({ agents }) => [...agents]));
  const quarantined = await tx
    .select({ task: quarantinedTasks.task, reason: quarantinedTasks.reason })
    .from(quarantinedTasks)
    .where(eq(quarantinedTasks.runId, runId));
  const out = new Set(quarantined.map((row) => row.task));
  const taskAt = taskOrder(sources, config.seed, out);
  if (taskAt(0) === null) throw await allQuarantined(tx, runId, quarantined);
  return (position) => {
    const task = taskAt(position);
    if (task === null) throw new Error(`no task is in turn for group ${position} of run ${runId}`);
    return { task, agent: ownAgents.get(task) ?? agentInTurn(config.agents, position) };
  };
}

async function allQuarantined(
  tx: Transaction,
  runId: string,
  quarantined: { reason: string }[],
): Promise<ApplicationFailure> {
  const ofRun = and(eq(groups.runId, runId), eq(groups.kind, 'train'));
  const failed = await readGroupTrials(tx, and(ofRun, eq(groups.dropped, 'failed'), isLive(groups)));
  const why = commonReason(quarantined.map(({ reason }) => ({ outcome: null, reason })));
  const message = `all ${quarantined.length} tasks of run ${runId} are quarantined, most often because ${why}. The trials of failed groups ended as ${countOutcomes(failed)}. Repair the cause, then "npx trialgate resume ${runId} --retry-failed"`;
  return ApplicationFailure.create({ type: 'all_quarantined', message, nonRetryable: true });
}
