import { createHash } from 'node:crypto';
import { TrialgateError } from '../../core/errors.ts';
import { SANDBOX_TRIAL_ID } from '../../core/ids.ts';

export function sandboxName(trialId: string, attempt: number): string {
  if (!SANDBOX_TRIAL_ID.test(trialId))
    throw new TrialgateError('bad_input', `trial id ${JSON.stringify(trialId)} is not valid`);
  if (!Number.isSafeInteger(attempt) || attempt < 1)
    throw new TrialgateError('bad_input', `attempt ${attempt} is not valid`);
  return `${trialId}.${attempt}`;
}

/** Names a deployment's folder in few characters, for labels and markers. */
export const homeDigest = (home: string): string => createHash('sha256').update(home).digest('hex').slice(0, 16);

/** Returns the marker of a sandbox's processes. It differs between deployments, which may have trials with the same name on one machine. */
export const markerOf = (home: string, name: string): string => `${name}@${homeDigest(home)}`;

/** Returns the name of the clean sandbox in which an attempt's work is verified. */
export const verifierName = (name: string): string => `${name}.verify`;
