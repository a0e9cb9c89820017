import { existsSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RunConfig } from './run-config.ts';

const project = fileURLToPath(new URL('..', import.meta.url));

/** Resolves the relative paths of a run file from `base`. A model may also be an installed one or the name of one on a hub. */
export function resolvePaths(config: RunConfig, base: string = project): RunConfig {
  const from = (path: string) => (isAbsolute(path) ? path : resolve(base, path));
  const candidates = [resolve(base, config.model), resolve(project, '.trialgate/models', config.model)];
  return {
    ...config,
    model: candidates.find((path) => existsSync(path)) ?? config.model,
    tasks: config.tasks.map(from),
    evaluation: { ...config.evaluation, tasks: config.evaluation.tasks.map(from) },
  };
}
