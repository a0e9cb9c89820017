import { attemptOfKey, sameText } from '../store/keys.ts';
import type { TrialNow } from '../store/queries/find-trials.ts';
import type { GatewayDeps } from './deps.ts';
import { Failure } from './failure.ts';
import { patiently } from './patiently.ts';

const bearer = (headers: Headers): string => /^Bearer\s+(.+?)\s*$/i.exec(headers.get('authorization') ?? '')?.[1] ?? '';

/** Lets the holder of the admin key pass. */
export function requireAdmin({ adminKey }: GatewayDeps, headers: Headers): void {
  if (adminKey === null || sameText(bearer(headers), adminKey)) return;
  throw unauthorized('session routes need the admin key: send `Authorization: Bearer <admin key>`');
}

/** Throws for a key that proves no attempt of the trial, and asks for the trial only then. */
export async function refuseStrangers(deps: GatewayDeps, trialId: string, headers: Headers): Promise<void> {
  if (attemptOfKey(deps.secret, trialId, bearer(headers)) === null) await openTrialOf(deps, trialId, headers);
}

/** The trial whose open attempt the request's key proves (rule 5). The recording transaction checks the fence again. */
export async function openTrialOf(deps: GatewayDeps, trialId: string, headers: Headers): Promise<TrialNow> {
  const trial = await patiently(deps, () => deps.trials.find(trialId));
  if (!trial) throw new Failure(404, 'trial_not_found', `trial ${trialId} is unknown`, { retryable: false });
  const attempt = attemptOfKey(deps.secret, trialId, bearer(headers));
  if (attempt === null) throw unauthorized(`this key does not open trial ${trialId}`);
  if (attempt !== trial.attempt) {
    throw closed(`attempt ${attempt} of trial ${trialId} is closed: attempt ${trial.attempt} is the current one`);
  }
  if (trial.status !== 'created') throw closed(`trial ${trialId} has ended (${trial.outcome ?? trial.status}): it takes no more calls`);
  return trial;
}

export const closed = (message: string) => new Failure(409, 'attempt_closed', message, { retryable: false });

const unauthorized = (message: string) =>
  new Failure(401, 'invalid_api_key', message, { retryable: false, headers: { 'www-authenticate': 'Bearer' } });
