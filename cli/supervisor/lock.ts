import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';
import { takeLock, type Lock } from '../../core/lock.ts';
import { livingState } from './state.ts';

/** Whoever runs the deployment has this lock, and a command that reads the store of a stopped deployment. */
export const takeDeployment = (home: string): Promise<Lock | null> => takeLock(home, 'supervisor');

/** A start waits so long for a command that reads the store. */
const READER_MS = 60_000;

/** Takes the supervisor's lock. @throws TrialgateError when another supervisor of this deployment lives. */
export async function lockDeployment(home: string, signal: AbortSignal): Promise<Lock> {
  for (const end = Date.now() + READER_MS; ; await sleep(100, undefined, { signal })) {
    const lock = await takeDeployment(home);
    if (lock) return lock;
    // A supervisor records itself at once. A command that reads the store records nothing.
    const state = livingState(home);
    if (state !== null && state.status !== 'stopped')
      throw new TrialgateError(
        'pool_busy',
        `Trialgate is already up in ${home}: \`npx trialgate status\` shows it, \`npx trialgate down\` stops it`,
      );
    if (Date.now() > end)
      throw new TrialgateError(
        'pool_busy',
        `a command such as \`show\` or \`export\` still reads the store in ${home}: start Trialgate when it has ended`,
      );
  }
}
