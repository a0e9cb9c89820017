import { glob, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { resolveConfig } from '../../../cli/config/resolve.ts';
import type { Deployment } from '../../../cli/config/schema.ts';
import type { ComponentName } from '../../../cli/supervisor/components/all.ts';
import { folderElsewhere } from '../../../cli/supervisor/components/postgres-home.ts';
import { lastLines } from '../../../cli/supervisor/logs.ts';
import { startStack, type Stack } from '../../../cli/supervisor/stack.ts';

/** Lets OpenMP's threads sleep while they wait for each other, because other processes need the cores. */
export const ON_SHARED_CORES = { OMP_WAIT_POLICY: 'PASSIVE' };

export type TemporaryDeployment = { home: string; env: NodeJS.ProcessEnv; config: Deployment; remove(): Promise<void> };

/** Returns the settings of a deployment for one test, with a temporary folder and free ports. */
export async function temporaryDeployment(settings: Record<string, string> = {}): Promise<TemporaryDeployment> {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-'));
  // These tests do not test isolation, so they also run where bubblewrap does not work.
  const own = {
    TRIALGATE_HOME: home,
    TRIALGATE_GATEWAY_PORT: '0',
    TRIALGATE_TEMPORAL_PORT: '0',
    TRIALGATE_POSTGRES_PORT: '0',
    TRIALGATE_UNSANDBOXED: 'true',
  };
  const env = { PATH: process.env['PATH'], HOME: home, LANG: 'C.UTF-8', ...ON_SHARED_CORES, ...own, ...settings };
  return { home, env, config: resolveConfig({ env, cwd: home }).config, remove: () => removeHome(home) };
}

/** Removes a deployment's folder. As root, it also removes the data outside the folder that belongs to PostgreSQL's user. */
async function removeHome(home: string): Promise<void> {
  await Promise.all([home, folderElsewhere(home)].map((folder) => rm(folder, { recursive: true, force: true })));
}

/** Runs the components of a temporary deployment, all or `only` these, supervised by this process while `body` runs. `settings` are variables. */
export async function withTemporaryStack<T>(
  body: (stack: Stack) => Promise<T>,
  signal: AbortSignal,
  only?: readonly ComponentName[],
  settings: Record<string, string> = {},
): Promise<T> {
  const { config, remove } = await temporaryDeployment(settings);
  try {
    const stack = await startStack({ config, only }, signal);
    return await body(stack).finally(() => stack.stop());
  } catch (error) {
    // The logs explain the failure and are removed with the folder.
    if (!signal.aborted)
      for await (const file of glob(join(config.home, 'logs/*.log')))
        console.error(`${basename(file)}:\n  ${lastLines(file, 15).join('\n  ')}`);
    throw error;
  } finally {
    await remove();
  }
}
