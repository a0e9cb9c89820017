import { existsSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { isAgentPath } from '../../core/run-config/agent-file.ts';
import { REPOSITORY } from '../../core/repository.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';

/** Resolves the relative paths of a run file from `base`. A model may also be an installed one or the name of one on a hub. */
export function resolvePaths(config: RunConfig, base: string = REPOSITORY): RunConfig {
  const from = (path: string) => (isAbsolute(path) ? path : resolve(base, path));
  const candidates = [resolve(base, config.model), resolve(REPOSITORY, '.trialgate/models', config.model)];
  return {
    ...config,
    model: candidates.find((path) => existsSync(path)) ?? config.model,
    agents: config.agents.map((entry) => {
      if (typeof entry === 'string') return isAgentPath(entry) ? from(entry) : entry;
      return {
        ...entry,
        mounts: Object.fromEntries(Object.entries(entry.mounts).map(([name, path]) => [name, from(path)])),
      };
    }),
    tasks: config.tasks.map(from),
    evaluation: { ...config.evaluation, tasks: config.evaluation.tasks.map(from) },
  };
}
