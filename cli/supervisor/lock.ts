import { TrialgateError } from '../../core/errors.ts';
import { takeLock, type Lock } from '../../core/lock.ts';

/** Takes the supervisor's lock. @throws TrialgateError when another supervisor of this deployment lives. */
export async function lockDeployment(home: string): Promise<Lock> {
  const lock = await takeLock(home, 'supervisor');
  if (lock) return lock;
  throw new TrialgateError(
    'pool_busy',
    `Trialgate is already up in ${home}: \`trialgate status\` shows it, \`trialgate down\` stops it`,
  );
}
