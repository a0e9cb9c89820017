import { agentLabels, type AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { listAgents, loadAgent } from './load-agent.ts';

const NOTICE =
  'reach all that this host reaches (network: host), including the ports on its loopback interface: only for agents and models that you trust';

/** Returns a notice for a run whose agents can reach more than the gateway; null if every agent reaches only the gateway. */
export async function networkNotice({
  network,
  agents,
}: Pick<RunConfig, 'network' | 'agents'>): Promise<string | null> {
  const names = network === null ? await withHostNetwork(agents) : network === 'host' ? agentLabels(agents) : [];
  return names.length ? `the agents ${names.join(', ')} ${NOTICE}` : null;
}

/** Returns the agents whose own file opens the host's network. */
export async function agentsWithHostNetwork(): Promise<string[]> {
  return withHostNetwork(await listAgents());
}

async function withHostNetwork(agents: readonly AgentEntry[]): Promise<string[]> {
  const loaded = await Promise.all(agents.map((agent) => loadAgent(agent).catch(() => null)));
  return loaded.flatMap((agent) => (agent?.network === 'host' ? [agent.name] : []));
}
