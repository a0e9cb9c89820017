import { and, eq } from 'drizzle-orm';
import { Context } from '@temporalio/activity';
import { openAttempt, type OpenAttempt } from '../../store/queries/open-attempt.ts';
import { attempts, trials, type Outcome, type Sampling } from '../../store/schema.ts';
import type { OpeningStep } from '../../core/trial-waits.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { Deps } from '../deps.ts';
import type { GroupPlan } from '../rollout/group-plan.ts';
import { nonRetryable } from '../temporal/non-retryable.ts';
import { readRun } from '../run/read-run.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { findTask } from '../tasks/row-task.ts';
import { requireNetwork } from '../tasks/require-network.ts';
import { agentOf } from '../../core/run-config/agent-file.ts';
import { agentEnvironment } from '../environments/agent-environment.ts';
import { agentName } from '../sandbox/agent-name.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { reachedNetwork } from '../sandbox/network.ts';
import { awaitEngineRoom } from './await-engine-room.ts';
import { placeTask, requirePackages } from '../sandbox/place-task.ts';
import type { Way } from '../sandbox/warm/warm-sandboxes.ts';
import { whileHeartbeating } from '../temporal/while-heartbeating.ts';

export type OpenTrial = { trialId: string; attempt: number; trialIndex: number; group: GroupPlan };
/** The result of opening a trial. One that has an outcome is not run again. `host` is the task queue of the worker that has the attempt's sandbox. */
export type OpenedTrial = { finished: Outcome } | { finished: null; attempt: number; host: string };

/** Opens an attempt, and its sandbox on this host as soon as there is a slot. */
export const openTrial =
  (deps: Deps) =>
  async (input: OpenTrial): Promise<OpenedTrial> =>
    whileHeartbeating((signal, say: (doing: OpeningStep) => void) =>
      nonRetryable(async () => {
        const { runId } = input.group;
        const config = await readRun(deps.db, runId);
        await awaitEngineRoom(deps.db, runId, { signal, onWait: () => say('engine_room') });
        const opened = await openAttemptOf(deps, input, config);
        if (opened.finished) return opened;
        const key = { trialId: input.trialId, attempt: opened.attempt };
        // An installation must not use up the agent's time.
        say('packages');
        const agent = await loadAgent(agentOf(config.agents, input.group.agent));
        await agentEnvironment(agent, { home: deps.home, signal });
        say('image');
        const task = await findTask(deps.db, input.group.runId, input.group.task, config);
        const place = await placeTask(task, config, { home: deps.home, signal });
        const network = requireNetwork(
          task,
          agent.name,
          reachedNetwork(place.backend, config.network ?? agent.network),
        );
        requirePackages(agent, place);
        const way = wayOf(network, deps.gatewayUrls);
        say('start_turn');
        const onTurn = (): void => say('start');
        await deps.sandboxes.open(key, { ...place, task, network: config.network, way, onTurn }, signal);
        return { ...opened, host: deps.hostQueue };
      }),
    );

/** Returns the way out for sandboxes that are started before the trials of such an agent. The host's own network needs none. */
function wayOf(network: AgentNetwork, [gateway]: readonly string[]): Way | undefined {
  if (network === 'host' || gateway === undefined) return undefined;
  return { gateway, ...(network === 'gateway' ? {} : { hosts: network }) };
}

async function openAttemptOf(
  deps: Deps,
  input: OpenTrial,
  config: RunConfig,
): Promise<{ finished: Outcome } | { finished: null; attempt: number }> {
  const { trialId, trialIndex, group } = input;
  const host = deps.hostQueue;
  const [row] = await deps.db.select().from(trials).where(eq(trials.id, trialId));
  if (row?.outcome) return { finished: row.outcome };
  // Temporal's retry of this activity continues the attempt that its first try opened.
  if (row && Context.current().info.attempt > 1 && row.attempt >= input.attempt && row.status === 'created') {
    // Another host than the first try's may have it now.
    const thisAttempt = and(eq(attempts.trialId, trialId), eq(attempts.attempt, row.attempt));
    await deps.db.update(attempts).set({ host }).where(thisAttempt);
    return { finished: null, attempt: row.attempt };
  }
  // A group that runs again after its workflow was lost starts after every recorded attempt.
  const attempt = row && input.attempt <= row.attempt ? row.attempt + 1 : input.attempt;
  // People know an agent by its name. Its label, which may be a path of this host, is that of the group.
  const agent = await agentName(config.agents, group.agent);
  await openAttempt(deps.db, { trialId, attempt, ...attemptSettings(config, group, trialIndex), agent, host });
  return { finished: null, attempt };
}

/** Returns the settings with which an attempt of a run is opened. */
export const attemptSettings = (
  config: RunConfig,
  group: GroupPlan,
  trialIndex: number,
): Omit<OpenAttempt, 'trialId' | 'attempt'> => ({
  runId: group.runId,
  groupId: group.id,
  trialIndex,
  task: group.task,
  agent: group.agent,
  sampling: samplingOf(config),
  budgets: { ...config.budgets, prompt_tokens: config.max_prompt_length },
  policyVersion: group.policyVersion,
});

/**
 * Returns the sampling settings of a run's trials. Without the run's own settings nothing truncates or changes the distribution, because
 * the trainer's softmax must reproduce it (invariant 2).
 */
export const samplingOf = (config: RunConfig): Sampling => ({
  temperature: 1,
  ...config.sampling,
  max_tokens: config.max_response_length,
  constrained_decoding: config.constrained_decoding,
  keep_thinking: config.keep_thinking,
  chat_template_kwargs: config.chat_template_kwargs,
});
