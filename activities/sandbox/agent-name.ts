import { basename } from 'node:path';
import { agentOf, type AgentEntry } from '../../core/run-config/agent-file.ts';
import { loadAgent } from './load-agent.ts';

/** Returns the name of an agent by its label: the name that its file gives, or the name of the file if the file cannot be read here. */
export const agentName = (agents: readonly AgentEntry[], label: string): Promise<string> =>
  loadAgent(agentOf(agents, label)).then(
    ({ name }) => name,
    () => basename(label).replace(/\.ya?ml$/, ''),
  );
