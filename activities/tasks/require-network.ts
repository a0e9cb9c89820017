import { TrialgateError } from '../../core/errors.ts';
import { notCovered } from '../../core/host-rules.ts';
import type { AgentNetwork } from '../../core/networks.ts';
import type { Task } from '../../core/task.ts';

/**
 * Returns the agent's network in this task. A task may narrow a list, and never opens what the run and agent files do not. A task that says
 * nothing accepts all.
 * @throws TrialgateError `bad_input` when the network is not the one that the task says, or its tests may reach more than that
 */
export function requireNetwork(task: Task, agent: string, network: AgentNetwork): AgentNetwork {
  if (task.kind !== 'folder') return network;
  requireListed(task.verifier.hosts, 'its tests', network, task.folder);
  if (task.network === null) return network;
  if (Array.isArray(task.network)) {
    if (network === 'host')
      throw refused(
        task.folder,
        `gives its agent ${task.network.join(', ')} alone, and the agent ${agent} reaches all that the host reaches: set \`network: [${task.network.join(', ')}]\` in the run file and run it in a kind of sandbox that holds it to that (\`npx trialgate sandbox list\`), or change the task`,
      );
    requireListed(task.network, 'its agent', network, task.folder);
    return task.network;
  }
  if (task.network === 'public' && network !== 'host')
    throw refused(
      task.folder,
      `gives its agent an open network, and the agent ${agent} reaches only ${network === 'gateway' ? 'the gateway' : 'the hosts of a list'}: set \`network: host\` in the run file, or change the task`,
    );
  if (task.network === 'no-network' && network === 'host')
    throw refused(
      task.folder,
      `gives its agent no network, and the agent ${agent} reaches all that the host reaches: set \`network: gateway\` in the run file and run it in a kind of sandbox that holds it to that (\`npx trialgate sandbox list\`), or change the task`,
    );
  return task.network === 'public' ? 'host' : 'gateway';
}

function requireListed(hosts: readonly string[], who: string, network: AgentNetwork, folder: string): void {
  if (network === 'host') return;
  const missing = notCovered(hosts, network === 'gateway' ? [] : network);
  if (missing.length > 0)
    throw refused(
      folder,
      `lets ${who} reach ${missing.join(', ')}, and the run does not: set \`network: [${hosts.join(', ')}]\` in the run file, or change the task`,
    );
}

const refused = (folder: string, why: string): TrialgateError =>
  new TrialgateError('bad_input', `${folder}/task.toml: the task ${why}`);
