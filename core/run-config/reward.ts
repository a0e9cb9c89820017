import { z } from 'zod';
import { pythonDependencies } from './dependencies.ts';
import { NETWORKS } from '../networks.ts';

/** The form of a reward's name. */
const REWARD_NAME = /^[A-Za-z][A-Za-z0-9_-]*$/;

/** A reward's Python function: a bundled one by its name, or `file.py:function`. */
const functionName = z
  .string()
  .regex(/^(?:[a-z][a-z0-9_]*|.+\.py:[A-Za-z_]\w*)$/, 'the name of a bundled reward, or `file.py:function`');

/** A reward function with its settings. */
export const rewardFunction = z.strictObject({
  function: functionName,
  /** Is passed to the function as keyword arguments. */
  options: z.record(z.string(), z.unknown()).default({}),
  /** The packages that the function imports. Without them it has Python's own library alone. */
  python: pythonDependencies.optional(),
  /** `none` lets the function reach no network; `host` all that the host reaches, as a judge model needs. Absent: as the bundled function needs, `none` for others. */
  network: z.enum(NETWORKS).exclude(['gateway']).or(z.literal('none')).optional(),
  /** Variables of its environment. `$NAME` is the worker's own variable of that name, so that a key need not stand in the run file. */
  env: z.record(z.string(), z.string()).default({}),
  /** The most seconds of one call. */
  seconds: z.number().positive().default(60),
  /** The processes that run the function on a host. Each runs one call at a time, or up to 64 if the function is `async`. */
  processes: z.int().min(1).default(4),
  memory_mb: z.number().positive().default(4096),
});
export type RewardFunction = z.output<typeof rewardFunction>;

const entry = z.union([functionName, rewardFunction]);

/** The rewards of rows: one function, whose reward is called `reward`, or several by name (see `reward_weights`). */
export const reward = z.union([functionName, rewardFunction, z.record(z.string().regex(REWARD_NAME), entry)]);
export type Reward = z.output<typeof reward>;

/** Returns the functions of a reward, by their names. */
export function rewardFunctions(given: Reward): Record<string, RewardFunction> {
  if (typeof given === 'string' || isFunction(given)) return { reward: withDefaults(given) };
  return Object.fromEntries(Object.entries(given).map(([name, each]) => [name, withDefaults(each)]));
}

const isFunction = (given: Exclude<Reward, string>): given is RewardFunction =>
  typeof given.function === 'string' && 'seconds' in given;

const withDefaults = (each: string | RewardFunction): RewardFunction =>
  typeof each === 'string' ? rewardFunction.parse({ function: each }) : each;

/** True when a function is in a file of the user, not a bundled one. */
export const isOwnFunction = (name: string): boolean => name.includes('.py:');
