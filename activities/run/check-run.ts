import type { RunConfig } from '../../core/run-config/run-config.ts';
import { rewardFunctions, type RewardFunction } from '../../core/run-config/reward.ts';
import { isRows } from '../../core/run-config/task-source.ts';
import { agentEnvironment } from '../environments/agent-environment.ts';
import { pythonEnvironment } from '../environments/python.ts';
import type { InstallOptions } from '../environments/run-installer.ts';
import { findFunction } from '../reward/find-function.ts';
import { loadAgent } from '../sandbox/load-agent.ts';
import { listFolder } from '../tasks/list-tasks.ts';

/**
 * Checks the agents, the tasks' folders and the reward functions that a run file names, and installs their packages, unless `install` is
 * null. Rows are checked when they are stored.
 * @throws TrialgateError `bad_input` with the file or the field that is wrong
 */
export async function checkRun(config: RunConfig, install: InstallOptions | null): Promise<void> {
  for (const entry of config.agents) {
    const agent = await loadAgent(entry);
    if (install) await agentEnvironment(agent, install);
  }
  for (const source of [...config.tasks, ...config.evaluation.tasks])
    if (!isRows(source)) await listFolder(typeof source === 'string' ? source : source.folder);
  for (const given of rewardsOf(config)) {
    const { python } = findFunction(given);
    if (python && install) await pythonEnvironment(python, install);
  }
}

/** Returns the functions of all rows that a run file names. */
const rewardsOf = ({ tasks, evaluation, reward }: RunConfig): RewardFunction[] =>
  [...tasks, ...evaluation.tasks]
    .filter(isRows)
    .flatMap((source) => Object.values(rewardFunctions(source.reward ?? reward ?? {})));
