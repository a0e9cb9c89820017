import { TrialgateError } from '../../core/errors.ts';
import { agentLabels, isAgentFunction, type AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { isRows } from '../../core/run-config/task-source.ts';
import { agentEnvironment } from '../environments/agent-environment.ts';
import { pythonEnvironment } from '../environments/python.ts';
import type { InstallOptions } from '../environments/run-installer.ts';
import { findFunction } from '../reward/find-function.ts';
import { loadAgent, type Agent } from '../sandbox/load-agent.ts';
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
export async function checkRun(
  config: RunConfig,
  install: InstallOptions | null,
  { isNew = true } = {},
): Promise<void> {
  const agents = await Promise.all(config.agents.map((entry) => loadAgent(entry)));
  if (isNew) requireOwnNames(agents, config.agents);
  requireHidden(agents, config, []);
  for (const agent of agents) requireKind(agent, config);
  for (const source of [...config.tasks, ...config.evaluation.tasks])
    if (!isRows(source)) {
      const tasks = await loadFolder(typeof source === 'string' ? source : source.folder, config.sandbox);
      requireHidden(agents, config, isNew ? tasks.map(({ loaded }) => loaded) : []);
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

/** Refuses two agents with the same name, because trials show only that. An agent that is listed twice has its turn twice. */
function requireOwnNames(agents: readonly Agent[], entries: readonly AgentEntry[]): void {
  const labels = agentLabels(entries);
  const named = new Map<string, string>();
  for (const [index, entry] of entries.entries()) {
    const [name, label] = [agents[index]?.name, labels[index]];
    // Functions and agents without a name have none of their own choice.
    const isNamed = typeof entry === 'string' ? !isAgentFunction(entry) : entry.name !== undefined;
    if (!isNamed || name === undefined || label === undefined) continue;
    const other = named.get(name);
    if (other !== undefined && other !== label)
      throw new TrialgateError(
        'bad_input',
        `agents: ${other} and ${label} have the same name, ${name}, by which trials show them: give each a \`name\` of its own`,
      );
    named.set(name, label);
  }
}
