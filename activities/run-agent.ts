import { ApplicationFailure } from '@temporalio/common';
import { and, desc, eq, ne } from 'drizzle-orm';
import type { Database } from '../store/database.ts';
import { attemptKey } from '../store/keys.ts';
import { findTrial } from '../store/queries/find-trials.ts';
import { calls } from '../store/schema.ts';
import { agentsFolder } from './agents-folder.ts';
import type { Deps } from './deps.ts';
import { answers, liveGateway } from './live-gateway.ts';
import { isolation } from './sandbox/isolation.ts';
import { loadAgent } from './sandbox/load-agent.ts';
import { runAgent as runInSandbox } from './sandbox/run-agent.ts';
import { whileHeartbeating } from './while-heartbeating.ts';

export type AgentEnd = {
  /** Null: it ended by itself and is to be verified. */
  outcome: 'agent_error' | 'truncated' | 'infra_error' | null;
  reason?: string;
  seconds: Record<string, number>;
};
export type AgentTurn = { trialId: string; attempt: number; agent: string };

/** Runs the agent where its sandbox is. It knows a base URL, a key and its task, nothing else. */
export const runAgent = (deps: Deps) => async (input: AgentTurn): Promise<AgentEnd> => {
  const { trialId, attempt } = input;
  const agent = await loadAgent(agentsFolder, input.agent);
  const ran = await deps.sandboxes.use(input, ({ sandbox, task, network: ofRun }) =>
    whileHeartbeating(async (signal) => {
      const gateway = await liveGateway(deps.gatewayUrls, signal);
      const network = ofRun ?? agent.network;
      if (network === 'host') sayHostNetwork(agent.name);
      const result = await runInSandbox({
        agent,
        agentsFolder,
        task,
        sandbox,
        isolation: await isolation(),
        trialId,
        gateway,
        network,
        apiKey: attemptKey(deps.secret, trialId, attempt),
        model: 'policy',
        signal,
      });
      return { result, lostGateway: result.ending === 'agent_error' && !(await answers(gateway, signal)) };
    }),
  );
  if (!ran) return { outcome: 'infra_error', reason: 'this worker does not hold the sandbox', seconds: {} };
  const { result, lostGateway } = ran;
  const spent = { agent: result.process.seconds };
  const reason = result.reason ?? undefined;
  if (result.ending === 'cancelled') throw ApplicationFailure.create({ type: 'cancelled', message: 'the agent was stopped', nonRetryable: true });
  if (result.ending === 'infra_error' || (result.ending === 'agent_error' && (lostGateway || (await diedOfUs(deps.db, trialId, attempt))))) {
    await deps.sandboxes.close(input);
    return { outcome: 'infra_error', reason, seconds: spent };
  }
  const exhausted = (await findTrial(deps.db, trialId))?.exhausted;
  if (exhausted) return { outcome: 'truncated', reason: exhausted, seconds: spent };
  return { outcome: result.ending === 'done' ? null : 'agent_error', reason, seconds: spent };
};

const said = new Set<string>();

/** Once a process for each agent. */
function sayHostNetwork(agent: string): void {
  if (said.has(agent)) return;
  said.add(agent);
  console.warn(`WARNING: the agent ${agent} reaches all that this host reaches (network: host), the ports of its loopback among them`);
}

/** Whether the last thing the agent saw before it died was a server error of ours, or engines that were paused for too long. */
async function diedOfUs(db: Database, trialId: string, attempt: number): Promise<boolean> {
  const [last] = await db
    .select({ httpStatus: calls.httpStatus, reason: calls.reason })
    .from(calls)
    .where(and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), ne(calls.status, 'cancelled')))
    .orderBy(desc(calls.seq))
    .limit(1);
  return last !== undefined && (last.httpStatus >= 500 || last.reason?.startsWith('engine_paused') === true);
}
