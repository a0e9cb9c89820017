import type { RunConfig } from '../../core/run-config/run-config.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { listTasks } from '../tasks/list-tasks.ts';

/**
 * Loads all agents and tasks that a run file names.
 * @throws TrialgateError `bad_input` with the file or the field that is wrong
 */
export async function checkRun(config: RunConfig): Promise<void> {
  for (const agent of config.agents) await loadAgent(agent);
  await listTasks([...config.tasks, ...config.evaluation.tasks]);
}
