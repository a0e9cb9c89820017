import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isOwnFunction, type RewardFunction } from '../../core/run-config/reward.ts';
import { requireOwnFolder } from '../sandbox/load-agent.ts';
import { BUNDLED, rewardsFolder } from './bundled.ts';

/** A reward's function, found. */
export type FoundFunction = RewardFunction & {
  /** The file on the host. The function can read all of its folder. */
  file: string;
  /** The name of the function in the file. */
  name: string;
};

/**
 * Finds the file of a reward's function.
 * @throws TrialgateError `bad_input` that names the file, or the bundled rewards
 */
export function findFunction(given: RewardFunction): FoundFunction {
  if (isOwnFunction(given.function)) {
    const at = given.function.lastIndexOf(':');
    const file = given.function.slice(0, at);
    if (!existsSync(file)) throw new TrialgateError('bad_input', `reward: there is no file ${file}`);
    requireOwnFolder(file, 'a reward function');
    return { ...given, file, name: given.function.slice(at + 1) };
  }
  const needs = BUNDLED[given.function];
  if (needs) return { ...needs, ...given, file: join(rewardsFolder, `${given.function}.py`), name: 'score' };
  throw new TrialgateError(
    'bad_input',
    `reward: there is no bundled reward ${given.function}: there are ${Object.keys(BUNDLED).join(', ')}; one of your own is \`file.py:function\``,
  );
}

/** Returns the name by which messages call a function: `grade.py:score`, or that of a bundled one. */
export const shortName = ({ function: name }: Pick<RewardFunction, 'function'>): string =>
  isOwnFunction(name) ? join(basename(dirname(name)), basename(name)) : name;
