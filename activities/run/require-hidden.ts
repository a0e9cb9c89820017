import { realpathSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isOwnFunction, rewardFunctions, type RewardFunction } from '../../core/run-config/reward.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { isRows } from '../../core/run-config/task-source.ts';
import type { Task } from '../../core/task.ts';
import { findFunction } from '../reward/find-function.ts';
import type { Agent } from '../sandbox/load-agent.ts';

/** Returns the functions of all rows that a run file names. */
export const rewardsOf = ({ tasks, evaluation, reward }: RunConfig): RewardFunction[] =>
  [...tasks, ...evaluation.tasks]
    .filter(isRows)
    .flatMap((source) => Object.values(rewardFunctions(source.reward ?? reward ?? {})));

/**
 * Refuses an agent that can read rows, reward functions, or the tests or the solution of a task, because it would find the answers there.
 * A folder that is named by a link is mounted as the folder behind it, so links are followed.
 * @throws TrialgateError `bad_input`
 */
export function requireHidden(agents: readonly Agent[], config: RunConfig, tasks: readonly Task[]): void {
  const hidden = [...dataOf(config), ...tasks.flatMap(answersOf)].map((path) => ({ path, real: realOf(path) }));
  for (const { name, folder, mounts } of agents)
    for (const readable of [folder, ...Object.values(mounts)]) {
      if (readable === null) continue;
      const real = realOf(readable);
      const found = hidden.find((each) => isWithin(each.real, real));
      if (found === undefined) continue;
      throw new TrialgateError(
        'bad_input',
        `agents: ${name} can read all of ${readable}, and ${found.path} is in it: put the agent into a folder without data, rewards and tasks`,
      );
    }
}

/** Returns the files and folders of a run file's rows and reward functions. Rows on the hub have none. */
function dataOf(config: RunConfig): string[] {
  const rows = [...config.tasks, ...config.evaluation.tasks].filter(isRows).map((source) => source.rows);
  const rewards = rewardsOf(config).flatMap((given) =>
    isOwnFunction(given.function) ? [findFunction(given).file] : [],
  );
  return [...rows, ...rewards].filter((path) => isAbsolute(path));
}

const answersOf = (task: Task): string[] =>
  task.kind === 'folder' ? ['tests', 'solution'].map((part) => join(task.folder, part)) : [];

const isWithin = (path: string, folder: string): boolean => `${path}/`.startsWith(`${folder}/`);

function realOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
