import { agentsFolder } from './agents-folder.ts';
import type { RunConfig } from './run-config.ts';
import { listAgents, loadAgent } from './sandbox/load-agent.ts';

const NOTICE = 'reach all that this host reaches (network: host), the ports of its loopback among them: only for agents and models that you trust';

/** What must be said of a run whose agents are not confined to the gateway; null where all are. */
export async function networkNotice({ network, agents }: Pick<RunConfig, 'network' | 'agents'>): Promise<string | null> {
  const names = network === null ? await withHostNetwork(agents) : network === 'host' ? agents : [];
  return names.length ? `the agents ${names.join(', ')} ${NOTICE}` : null;
}

/** The agents whose own file opens the network of the host. */
export async function agentsWithHostNetwork(): Promise<string[]> {
  return withHostNetwork(await listAgents(agentsFolder));
}

async function withHostNetwork(names: readonly string[]): Promise<string[]> {
  const loaded = await Promise.all(names.map((name) => loadAgent(agentsFolder, name).catch(() => null)));
  return loaded.flatMap((agent) => (agent?.network === 'host' ? [agent.name] : []));
}
