import { basename } from 'node:path';
import { agentLabels, agentOf, type AgentEntry } from '../../core/run-config/agent-file.ts';
import { loadAgent } from './load-agent.ts';

/**
 * Returns the name of an agent by its label: the name that its file gives, or the name of the file if the file cannot be read here. Agents without a
 * name of their own may have the same one; each of these is called by its label, without folders.
 */
export async function agentName(agents: readonly AgentEntry[], label: string): Promise<string> {
  const others = [...new Set(agentLabels(agents))].filter((each) => each !== label);
  const [name, ...names] = await Promise.all([label, ...others].map((each) => ownName(agents, each)));
  return name === undefined || names.includes(name) ? basename(label) : name;
}

const ownName = (agents: readonly AgentEntry[], label: string): Promise<string> =>
  loadAgent(agentOf(agents, label)).then(
    ({ name }) => name,
    () => basename(label).replace(/\.ya?ml$/, ''),
  );
