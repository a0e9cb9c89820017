import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { resolvePython } from '../../core/run-config/dependencies.ts';
import { isOwnFunction, rewardFunctions, type Reward, type RewardFunction } from '../../core/run-config/reward.ts';
import { isRows, type TaskSource } from '../../core/run-config/task-source.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { isRowsFile } from '../tasks/formats/index.ts';
import { resolveAgent } from '../sandbox/load-agent.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

/** Returns the folder of a model, of an installed one too; any other name is that of one on a hub and stays. */
export function resolveModel(model: string, base: string = REPOSITORY): string {
  const given = model.startsWith('~/') ? join(homedir(), model.slice(2)) : resolve(base, model);
  const candidates = [given, resolve(REPOSITORY, '.trialgate/models', model)];
  return candidates.find((path) => existsSync(path)) ?? model;
}

/** Resolves the relative paths of a run file from `base`. A model may also be an installed one or the name of one on a hub. */
export function resolvePaths(config: RunConfig, base: string = REPOSITORY): RunConfig {
  const from = (path: string) => (isAbsolute(path) ? path : resolve(base, path));
  return {
    ...config,
    model: resolveModel(config.model, base),
    agents: config.agents.map((entry) => {
      if (typeof entry === 'string') return isAgentPath(entry) ? from(entry) : entry;
      return resolveAgent(entry, base);
    }),
    tasks: config.tasks.map((source) => resolveSource(source, from)),
    reward: config.reward === null ? null : resolveReward(config.reward, from),
    evaluation: { ...config.evaluation, tasks: config.evaluation.tasks.map((source) => resolveSource(source, from)) },
    loggers: config.loggers.map((each) => (each.folder === undefined ? each : { ...each, folder: from(each.folder) })),
  };
}

type Resolve = (path: string) => string;

function resolveSource(source: TaskSource, from: Resolve): TaskSource {
  if (typeof source === 'string') return from(source);
  if (!isRows(source)) return { ...source, folder: from(source.folder) };
  const path = from(source.rows);
  // Any other name is that of a dataset on the hub.
  const isPath = existsSync(path) || source.rows.startsWith('.') || isRowsFile(source.rows);
  const rows = isPath ? path : source.rows;
  return { ...source, rows, ...(source.reward ? { reward: resolveReward(source.reward, from) } : {}) };
}

function resolveReward(given: Reward, from: Resolve): Reward {
  const functions = Object.entries(rewardFunctions(given)).map(([name, each]): [string, RewardFunction] => [
    name,
    {
      ...each,
      function: isOwnFunction(each.function) ? from(each.function) : each.function,
      ...(each.python ? { python: resolvePython(each.python, from) } : {}),
    },
  ]);
  return Object.fromEntries(functions);
}
