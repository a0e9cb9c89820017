import path from 'node:path';
import { REPOSITORY } from '../core/repository.ts';

/** Installed programs are in the repository, wherever the deployment's folder is. */
const installs = path.join(REPOSITORY, '.trialgate');

export const INSTALLS = {
  root: installs,
  venv: path.join(installs, 'venv'),
  python: path.join(installs, 'venv/bin/python'),
  temporal: path.join(installs, 'venv/bin/temporal'),
  models: path.join(installs, 'models'),
  smallModel: path.join(installs, 'models/SmolLM2-135M-Instruct'),
  tools: path.join(installs, 'tools'),
  loggerLibraries: path.join(installs, 'logger-libraries'),
  /** vLLM needs ten seconds to inspect a model's class. The result is the same for every deployment. */
  vllmCache: path.join(installs, 'cache/vllm'),
  stamps: path.join(installs, 'stamps'),
  gpuWorkers: path.join(REPOSITORY, 'gpu-workers'),
  node: path.join(REPOSITORY, 'node_modules/.bin/node'),
  main: path.join(REPOSITORY, 'cli/main.ts'),
  /** The built page on runs, which the gateway serves. */
  page: path.join(REPOSITORY, 'web/dist'),
};

/** Returns the files and folders of one deployment, all under `home`. */
export function homeFolders(home: string) {
  return {
    home,
    logs: path.join(home, 'logs'),
    postgres: path.join(home, 'postgres'),
    temporalDb: path.join(home, 'temporal.db'),
    checkpoints: path.join(home, 'checkpoints'),
    cache: path.join(home, 'cache'),
    run: path.join(home, 'run'),
    state: path.join(home, 'state.json'),
    secrets: path.join(home, 'secrets.json'),
    engineChoice: path.join(home, 'engine.json'),
    loggers: path.join(home, 'loggers'),
  };
}
