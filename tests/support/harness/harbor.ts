import { globSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { installLocked } from '../../../cli/install/locked-folder.ts';
import { findPython } from '../../../cli/install/python.ts';
import { REPOSITORY } from '../../../core/repository.ts';

const LOCK = join(REPOSITORY, 'tests/clients/python/requirements-harbor.txt');

/** Returns the Python of an environment with Harbor, which is installed once. Rejects with the reason when it cannot be had. */
export async function harborPython(signal: AbortSignal): Promise<string> {
  const base = newerPython();
  if (base === null)
    throw new Error('Harbor needs Python 3.12 or 3.13, and this machine has neither on the PATH nor in pyenv');
  const log = join(INSTALLS.root, 'logs/clients.log');
  const folder = await installLocked(join(INSTALLS.root, 'clients/harbor'), { python: LOCK }, { log, signal, base });
  return join(folder, 'bin/python');
}

/** On the PATH, pyenv has commands of versions that it does not run there. */
function newerPython(): string | null {
  const named = ['3.13', '3.12'].flatMap((version) => [
    `python${version}`,
    ...globSync(join(homedir(), `.pyenv/versions/${version}.*/bin/python3`)),
  ]);
  for (const name of named)
    try {
      return findPython(name).path;
    } catch {
      continue;
    }
  return null;
}

/** The variables of a program that runs Harbor: a home of its own, and Trialgate's command line for its sandboxes. */
export const harborVariables = (home: string): Record<string, string> => ({
  PATH: ['/usr/local/bin', '/usr/bin', '/bin'].join(':'),
  HOME: home,
  LANG: 'C.UTF-8',
  TRIALGATE_HOME: join(home, 'trialgate'),
  PYTHONPATH: [join(REPOSITORY, 'clients/python'), join(REPOSITORY, 'tests/support/scenarios/harbor')].join(':'),
  PYTHONDONTWRITEBYTECODE: '1',
  HARBOR_TELEMETRY: 'off',
  // It would fetch the models' prices.
  LITELLM_LOCAL_MODEL_COST_MAP: 'True',
});

/** The words of `trialgate` in a checkout, for `--environment-args`. */
export const TRIALGATE = [INSTALLS.node, INSTALLS.main];
