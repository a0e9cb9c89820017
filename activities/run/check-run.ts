import type { RunConfig } from '../../core/run-config/run-config.ts';
import { isRows } from '../../core/run-config/task-source.ts';
import { agentEnvironment } from '../environments/agent-environment.ts';
import { pythonEnvironment } from '../environments/python.ts';
import type { InstallOptions } from '../environments/run-installer.ts';
import { findFunction } from '../reward/find-function.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { requireImages, requireKind } from '../sandbox/place-task.ts';
import { loadFolder } from '../tasks/list-tasks.ts';
import { requireNetwork } from '../tasks/require-network.ts';
import { requireRegularFiles } from '../tasks/require-regular-files.ts';
import { requireHidden, rewardsOf } from './require-hidden.ts';

/**
 * Checks the agents, the tasks' folders and the reward functions that a run file names, and installs their packages, unless `install` is
 * null. Rows are checked when they are stored.
 * @throws TrialgateError `bad_input` with the file or the field that is wrong
 */
export async function checkRun(config: RunConfig, install: InstallOptions | null): Promise<void> {
  const agents = await Promise.all(config.agents.map((entry) => loadAgent(entry)));
  requireHidden(agents, config, []);
  for (const agent of agents) requireKind(agent, config);
  for (const source of [...config.tasks, ...config.evaluation.tasks])
    if (!isRows(source)) {
      const tasks = await loadFolder(typeof source === 'string' ? source : source.folder, config.sandbox);
      requireHidden(
        agents,
        config,
        tasks.map(({ loaded }) => loaded),
      );
      for (const { loaded } of tasks) {
        for (const agent of agents) {
          const network = requireNetwork(loaded, agent.name, config.network ?? agent.network);
          requireKind({ ...agent, network }, { ...config, network: null });
        }
        requireImages(loaded, config);
        await requireRegularFiles(loaded);
      }
    }
  for (const given of rewardsOf(config)) findFunction(given);
  if (install) await installPackages(config, install);
}

/** Installs the packages of the agents and the reward functions that a run file names. */
export async function installPackages(config: RunConfig, install: InstallOptions): Promise<void> {
  for (const entry of config.agents) await agentEnvironment(await loadAgent(entry), install);
  for (const given of rewardsOf(config)) {
    const { python } = findFunction(given);
    if (python) await pythonEnvironment(python, install);
  }
}
