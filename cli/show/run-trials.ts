import { and, asc, eq, isNull } from 'drizzle-orm';
import { readRun } from '../../activities/run/read-run.ts';
import { agentName } from '../../activities/sandbox/agent-name.ts';
import { weightedReward } from '../../core/weighted-reward.ts';
import type { Database } from '../../store/database.ts';
import { groups, trials, type Outcome } from '../../store/schema.ts';
import { table } from './table.ts';

export type TrialLine = {
  trial: string;
  /** Null in an evaluation. */
  iteration: number | null;
  task: string | null;
  /** Its name. In trials that an earlier release opened: the path of the agent's file, or `inline:` and its name or position. */
  agent: string | null;
  agent_name: string | null;
  attempt: number;
  /** Null while the trial has none. */
  outcome: Outcome | null;
  reward: number | null;
  calls: number;
  reason: string | null;
};

/**
 * Returns a run's trials, group by group. `open` are those without an outcome.
 * @throws TrialgateError `not_found` when there is no such run
 */
export async function listRunTrials(
  db: Database,
  runId: string,
  only: { outcome?: Outcome | 'open'; iteration?: number } = {},
): Promise<TrialLine[]> {
  const { reward_weights: weights, agents } = await readRun(db, runId);
  const { outcome, iteration } = only;
  const rows = await db
    .select({ group: groups, trial: trials })
    .from(trials)
    .innerJoin(groups, eq(groups.id, trials.groupId))
    .where(
      and(
        eq(groups.runId, runId),
        outcome === undefined ? undefined : outcome === 'open' ? isNull(trials.outcome) : eq(trials.outcome, outcome),
        iteration === undefined ? undefined : eq(groups.iteration, iteration),
      ),
    )
    .orderBy(asc(groups.iteration), asc(groups.take), asc(groups.ordinal), asc(trials.trialIndex));
  const labels = new Set(rows.flatMap(({ trial: { agent } }) => agent ?? []));
  const names = new Map(
    await Promise.all([...labels].map(async (label) => [label, await agentName(agents, label)] as const)),
  );
  return rows.map(({ group, trial }) => ({
    trial: trial.id,
    iteration: group.iteration,
    task: trial.task,
    agent: trial.agent,
    agent_name: trial.agent === null ? null : (names.get(trial.agent) ?? null),
    attempt: trial.attempt,
    outcome: trial.outcome,
    reward: trial.rewards ? weightedReward(trial.rewards, weights) : null,
    calls: trial.usedCalls,
    reason: trial.reason,
  }));
}

export function trialsTable(lines: readonly TrialLine[]): string {
  if (lines.length === 0) return 'no such trials';
  return table(
    ['trial', 'task', 'agent', 'attempt', 'outcome', 'reward', 'calls', 'reason'],
    lines.map(({ trial, task, agent_name: agent, attempt, outcome, reward, calls, reason }) => [
      trial,
      task?.split('/').at(-1) ?? '–',
      agent ?? '–',
      String(attempt),
      outcome ?? 'open',
      reward === null ? '–' : reward.toFixed(3),
      String(calls),
      reason ?? '',
    ]),
  );
}
