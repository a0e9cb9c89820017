import { existsSync } from 'node:fs';
import { isAbsolute, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RunConfig } from './run-config.ts';

const project = fileURLToPath(new URL('..', import.meta.url));

/** Relative paths of a run file are meant from `base`; a model may also be one of the installed ones, or a hub's name. */
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
