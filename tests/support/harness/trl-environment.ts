import { realpathSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { content, lockFile } from '../../../cli/install/locks.ts';
import { mustRun } from '../../../cli/install/run-step.ts';
import { REPOSITORY } from '../../../core/repository.ts';

const FOLDER = join(INSTALLS.root, 'trl');
/** Says what the environment was made from: the lock, and the environment whose packages it sees. It is written last, so a torn one has none. */
const MADE_FROM = join(FOLDER, 'made-from.txt');
const LOG = join(INSTALLS.root, 'logs/trl.log');

/**
 * Returns the Python of an environment with TRL, which also sees the workers' packages. The first caller makes it.
 * @throws when the package index does not give the packages
 */
export async function trlPython(signal: AbortSignal): Promise<string> {
  const python = join(FOLDER, 'bin/python');
  // The installs may be linked from a folder that is removed before them.
  const workers = realpathSync(INSTALLS.venv);
  const from = `# ${workers}\n${content(lockFile('trl'))}`;
  if (content(MADE_FROM) === from) return python;
  rmSync(FOLDER, { recursive: true, force: true });
  const make = [join(workers, 'bin/python'), join(REPOSITORY, 'bench/trl_baseline.py'), '--make-environment', FOLDER];
  await mustRun('installing TRL', LOG, make, { signal });
  writeFileSync(MADE_FROM, from);
  return python;
}

/** The variables with which a program finds our packages and stays within one core and without the network. */
export const TRL_ENVIRONMENT = {
  PYTHONPATH: ['clients/python', 'clients/trl', 'gpu-workers'].map((each) => join(REPOSITORY, each)).join(delimiter),
  OMP_NUM_THREADS: '1',
  HF_HUB_OFFLINE: '1',
  HF_DATASETS_OFFLINE: '1',
  TRL_EXPERIMENTAL_SILENCE: '1',
  VLLM_NO_USAGE_STATS: '1',
};
