import { ApplicationFailure } from '@temporalio/common';
import { agentOf, isInlineAgent, type AgentEntry } from '../../core/run-config/agent-file.ts';
import type { Database } from '../../store/database.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { Evidence } from '../../store/schema.ts';
import { attemptKey } from '../../core/keys.ts';
import { findTrial } from '../../store/queries/find-trials.ts';
import { readEngineWait } from '../../store/queries/read-engine-wait.ts';
import type { Deps } from '../deps.ts';
import { readRun } from '../run/read-run.ts';
import { judgeAgentEnd } from './judge-agent-end.ts';
import { keepDisk, keepOutput } from './keep-output.ts';
import { answers, liveGateway } from './live-gateway.ts';
import { countOomKills, wasMachineOutOfMemory } from '../sandbox/oom-kills.ts';
import { agentEnvironment } from '../environments/agent-environment.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { reachedNetwork } from '../sandbox/network.ts';
import { runAgentProcess } from '../sandbox/run-agent-process.ts';
import { requireNetwork } from '../tasks/require-network.ts';
import { readGatewayEvidence } from './read-gateway-evidence.ts';
import { readWait, waitReason } from './read-wait.ts';
import { whileHeartbeating } from '../temporal/while-heartbeating.ts';

export type AgentEnd = {
  /** Null when the agent ended by itself and its work is to be verified. */
  outcome: 'timed_out' | 'agent_error' | 'truncated' | 'infra_error' | null;
  reason?: string;
  /** The evidence for an `infra_error`. */
  evidence?: Evidence;
  seconds: Record<string, number>;
};
export type AgentTurn = { trialId: string; attempt: number; agent: string };

/** Runs the agent in its sandbox. The agent knows only a base URL, a key and its task. */
export const runAgent =
  (deps: Deps) =>
  async (input: AgentTurn): Promise<AgentEnd> => {
    const { trialId, attempt } = input;
    const agent = await loadAgent(await entryOf(deps.db, trialId, input.agent));
    const ran = await deps.sandboxes.use(input, ({ sandbox, backend, task, network: ofRun, gateway: before }) =>
      whileHeartbeating(async (signal) => {
        // A sandbox that was started before leads to one gateway.
        const gateway =
          before !== null && (await answers(before, signal)) ? before : await liveGateway(deps.gatewayUrls, signal);
        const wanted = ofRun ?? agent.network;
        const network = requireNetwork(task, agent.name, reachedNetwork(backend, wanted));
        if (network === 'host' && wanted !== 'gateway') warnOfHostNetwork(agent.name, wanted);
        const oomKills = await countOomKills();
        const result = await runAgentProcess({
          agent,
          task,
          sandbox,
          backend,
          environment: await agentEnvironment(agent, { home: deps.home, signal }),
          trialId,
          gateway,
          network,
          apiKey: attemptKey(deps.secret, trialId, attempt),
          waited: async () => (await readEngineWait(deps.db, { trialId, attempt })).seconds,
          model: 'policy',
          signal,
        });
        return {
          result,
          isMachineOutOfMemory: wasMachineOutOfMemory(result.process, {
            before: oomKills,
            after: await countOomKills(),
          }),
          isGatewayAway:
            (result.ending === 'agent_error' || result.ending === 'timed_out') && !(await answers(gateway, signal)),
        };
      }),
    );
    if (!ran)
      return {
        outcome: 'infra_error',
        evidence: 'host',
        reason: 'this worker does not have the trial’s sandbox any more',
        seconds: {},
      };
    const { result, isMachineOutOfMemory, isGatewayAway } = ran;
    const { ending, reason, isDiskFull } = result;
    if (ending === 'cancelled')
      throw ApplicationFailure.create({ type: 'cancelled', message: 'the agent was stopped', nonRetryable: true });
    await keepOutput(deps.db, { trialId, attempt, program: 'agent', ...result.process });
    await keepDisk(deps.db, { trialId, attempt, diskBytes: result.process.diskBytes });
    const spent = { agent: result.process.seconds };
    const killed = result.process.signal === 'SIGKILL' || result.process.exitCode === SIGKILL_EXIT;
    // This does not ask the store, which may be down together with the gateway and would cause a wait.
    const recorded = isGatewayAway
      ? NOTHING_RECORDED
      : await readGatewayEvidence(deps.db, { trialId, attempt, gatewayFailedAt: result.process.gatewayFailedAt });
    const wait = ending === 'timed_out' && !isGatewayAway ? await readWait(deps)({ trialId, attempt }) : null;
    const waited = wait?.isExcuse && wait.seconds >= spent.agent / 2 ? waitReason(wait.seconds) : null;
    const judged = judgeAgentEnd(
      { ending, reason, killed },
      { isDiskFull, isMachineOutOfMemory, isGatewayAway, waited, ...recorded },
    );
    const why = judged.reason ?? undefined;
    if (judged.outcome === 'infra_error') {
      await deps.sandboxes.close(input);
      return { outcome: 'infra_error', evidence: judged.evidence, reason: why, seconds: spent };
    }
    const exhausted = (await findTrial(deps.db, trialId))?.exhausted;
    if (exhausted) return { outcome: 'truncated', reason: exhausted, seconds: spent };
    return { outcome: judged.outcome, reason: why, seconds: spent };
  };

/** Returns the agent's entry in its run's file. A trial outside any run has no agent within a file. */
async function entryOf(db: Database, trialId: string, label: string): Promise<AgentEntry> {
  if (!isInlineAgent(label)) return label;
  const runId = (await findTrial(db, trialId))?.runId;
  return runId ? agentOf((await readRun(db, runId)).agents, label) : label;
}

const warned = new Set<string>();

/** Warns once in each process for each agent. */
function warnOfHostNetwork(agent: string, wanted: AgentNetwork): void {
  if (warned.has(agent)) return;
  warned.add(agent);
  const why = wanted === 'host' ? 'network: host' : 'its sandbox cannot hold it to its list of hosts';
  console.warn(
    `WARNING: the agent ${agent} reaches all that this host reaches (${why}), including the ports on its loopback interface`,
  );
}

/** The exit code that shells and bubblewrap report for it. */
const SIGKILL_EXIT = 128 + 9;
const NOTHING_RECORDED = { hasGatewayFailed: false, unanswered: null, earlier: 0, enginesAnswer: false };
