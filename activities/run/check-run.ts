import { isAbsolute } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { agentLabels, isAgentFunction, type AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { isOwnFunction, rewardFunctions, type RewardFunction } from '../../core/run-config/reward.ts';
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

/**
 * Checks the agents, the tasks' folders and the reward functions that a run file names, and installs their packages, unless `install` is
 * null. Rows are checked when they are stored.
 * @throws TrialgateError `bad_input` with the file or the field that is wrong
 */
export async function checkRun(config: RunConfig, install: InstallOptions | null): Promise<void> {
  const agents = await Promise.all(config.agents.map((entry) => loadAgent(entry)));
  requireOwnNames(agents, config.agents);
  requireHidden(agents, config);
  for (const agent of agents) requireKind(agent, config);
  if (install) for (const agent of agents) await agentEnvironment(agent, install);
  for (const source of [...config.tasks, ...config.evaluation.tasks])
    if (!isRows(source))
      for (const { loaded } of await loadFolder(typeof source === 'string' ? source : source.folder, config.sandbox)) {
        for (const agent of agents) {
          const network = requireNetwork(loaded, agent.name, config.network ?? agent.network);
          requireKind({ ...agent, network }, { ...config, network: null });
        }
        requireImages(loaded, config);
        await requireRegularFiles(loaded);
      }
  for (const given of rewardsOf(config)) {
    const { python } = findFunction(given);
    if (python && install) await pythonEnvironment(python, install);
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

/** Returns the functions of all rows that a run file names. */
const rewardsOf = ({ tasks, evaluation, reward }: RunConfig): RewardFunction[] =>
  [...tasks, ...evaluation.tasks]
    .filter(isRows)
    .flatMap((source) => Object.values(rewardFunctions(source.reward ?? reward ?? {})));

/** Refuses rows and reward functions in a folder that an agent can read, because it would find the answers there. */
function requireHidden(agents: readonly Agent[], config: RunConfig): void {
  const rows = [...config.tasks, ...config.evaluation.tasks].filter(isRows).map((source) => source.rows);
  const rewards = rewardsOf(config).flatMap((given) =>
    isOwnFunction(given.function) ? [findFunction(given).file] : [],
  );
  for (const { name, folder, mounts } of agents)
    for (const readable of [folder, ...Object.values(mounts)])
      for (const hidden of [...rows, ...rewards])
        if (readable !== null && isAbsolute(hidden) && `${hidden}/`.startsWith(`${readable}/`))
          throw new TrialgateError(
            'bad_input',
            `agents: ${name} can read all of ${readable}, and ${hidden} is in it: put the agent into a folder without data and rewards`,
          );
}
