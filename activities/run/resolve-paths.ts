import { existsSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { resolveMounts } from '../sandbox/load-agent.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

/** Returns the folder of a model, of an installed one too; any other name is that of one on a hub and stays. */
export function resolveModel(model: string, base: string = REPOSITORY): string {
  const candidates = [resolve(base, model), resolve(REPOSITORY, '.trialgate/models', model)];
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
      return { ...entry, mounts: resolveMounts(entry, base) };
    }),
    tasks: config.tasks.map(from),
    evaluation: { ...config.evaluation, tasks: config.evaluation.tasks.map(from) },
  };
}
