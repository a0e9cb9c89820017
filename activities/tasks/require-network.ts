import { TrialgateError } from '../../core/errors.ts';
import type { NETWORKS } from '../../core/networks.ts';
import type { Task } from '../../core/task.ts';

/**
 * Refuses an agent whose network is not the one that the task says. A task that says nothing accepts both.
 * @throws TrialgateError `bad_input`
 */
export function requireNetwork(task: Task, agent: string, network: (typeof NETWORKS)[number]): void {
  if (task.kind !== 'folder' || task.network === null) return;
  const wanted = task.network === 'public' ? 'host' : 'gateway';
  if (network === wanted) return;
  const why =
    wanted === 'host'
      ? `gives its agent an open network, and the agent ${agent} reaches only the gateway: set \`network: host\` in the run file, or change the task`
      : `gives its agent no network, and the agent ${agent} reaches all that the host reaches: set \`network: gateway\` in the run file and run it under bubblewrap, or change the task`;
  throw new TrialgateError('bad_input', `${task.folder}/task.toml: the task ${why}`);
}
