import { attemptOfKey, runKey, sameText, trialOfKey } from '../../core/keys.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isTrialId } from '../../core/ids.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { GatewayDeps } from './deps.ts';
import { attemptClosed, Failure } from '../failure.ts';
import { KEY_HEADERS } from '../protocols/all.ts';
import { isLocal } from './loopback.ts';
import { withStoreRetry } from '../with-store-retry.ts';

export const bearer = (headers: Headers): string =>
  /^Bearer\s+(.+)$/i.exec(headers.get('authorization')?.trimEnd() ?? '')?.[1] ?? '';

/** True when the request has the admin key. Without an admin key the gateway listens on loopback only, and any local program counts. */
export const holdsAdminKey = ({ adminKey }: Pick<GatewayDeps, 'adminKey'>, headers: Headers): boolean =>
  adminKey === null ? isLocal(headers) : sameText(bearer(headers), adminKey);

/** The keys of a gateway. A route that only relay workers ask has no read-only key. */
type Keys = Pick<GatewayDeps, 'adminKey'> & Partial<Pick<GatewayDeps, 'readKey'>>;

/** The methods by which a request changes nothing. */
const READING: ReadonlySet<string> = new Set(['GET', 'HEAD']);

const holdsReadKey = ({ readKey = null }: Keys, headers: Headers): boolean =>
  readKey !== null && sameText(bearer(headers), readKey);

/** True when the request may read what the admin key opens: with that key, or with the read-only key. */
export const mayRead = (deps: Keys, headers: Headers): boolean =>
  holdsReadKey(deps, headers) || holdsAdminKey(deps, headers);

/** @throws TrialgateError when the key that only reads is the one that may do everything, or is the only key */
export function requireTwoKeys(adminKey: string | null, readKey: string | null): void {
  if (readKey !== null && adminKey === null)
    throw new TrialgateError(
      'bad_input',
      'read_key: without admin_key any program of this machine may change everything, with no key at all: set admin_key too',
    );
  if (readKey !== null && readKey === adminKey)
    throw new TrialgateError('bad_input', 'read_key: expected another key than admin_key, which may change everything');
}

/** Throws a 401 unless the request has the admin key, or reads with the read-only key. */
export function requireReader(deps: Keys, { method, headers }: Pick<Request, 'method' | 'headers'>): void {
  if (!READING.has(method) || !holdsReadKey(deps, headers)) requireAdmin(deps, headers);
}

/** Throws a 401 unless the request has the admin key. */
export function requireAdmin(deps: Keys, headers: Headers): void {
  if (holdsAdminKey(deps, headers)) return;
  if (holdsReadKey(deps, headers))
    throw new Failure(403, 'read_only_key', 'this key only reads: this route needs the admin key', {
      retryable: false,
    });
  if (deps.adminKey === null)
    throw new Failure(
      403,
      'not_local',
      'without an admin key, this route answers only programs that call localhost: call it there, or start the gateway with --admin-key',
      { retryable: false },
    );
  throw unauthorized('this route needs the admin key: send `Authorization: Bearer <admin key>`');
}

/** Throws a 401 unless the request has the key of the run or the admin key. */
export function requireRunKey(deps: GatewayDeps, runId: string, headers: Headers): void {
  if (sameText(bearer(headers), runKey(deps.secret, runId)) || (deps.adminKey !== null && holdsAdminKey(deps, headers)))
    return;
  throw unauthorized(
    `this key is not that of run ${runId}: send \`Authorization: Bearer <run key>\`, which \`npx trialgate key ${runId}\` prints`,
  );
}

/** OpenAI's clients send a bearer token, those of other protocols a header of their own. */
function keyOf(headers: Headers): string {
  const token = bearer(headers);
  if (token !== '') return token;
  for (const name of KEY_HEADERS) {
    const key = headers.get(name);
    if (key) return key;
  }
  return '';
}

/** The trial that a request names by URL or key, and the attempt that its key proves. */
export type Claim = { trialId: string; attempt: number | null } | { trialId: null; attempt: null };

export function claimOf({ secret }: GatewayDeps, named: string | undefined, headers: Headers): Claim {
  const key = keyOf(headers);
  const trialId = named ?? trialOfKey(secret, key);
  return trialId === null ? { trialId, attempt: null } : { trialId, attempt: attemptOfKey(secret, trialId, key) };
}

/**
 * Returns the trial whose open attempt the request's key proves (invariant 5). Without a trial in the URL it is the one that the key names.
 * The transaction that records the call checks the attempt again. `keyed` requires a key even where the URL alone would be enough.
 */
export const openTrialOf = (
  deps: GatewayDeps,
  named: string | undefined,
  headers: Headers,
  { keyed = false } = {},
): Promise<TrialNow> => openClaimed(deps, claimOf(deps, named, headers), headers, { keyed });

export async function openClaimed(
  deps: GatewayDeps,
  { trialId, attempt: proven }: Claim,
  headers: Headers,
  { keyed = false } = {},
): Promise<TrialNow> {
  if (trialId === null) throw unauthorized("the URL names no trial: send the trial's own key, or use its base URL");
  const trial = isTrialId(trialId) && (await withStoreRetry(deps, () => deps.trials.find(trialId)));
  // Trial ids are guessable: answer 401, not 404, so that callers without a key cannot probe.
  if (!trial && (proven !== null || deps.settings.compat === 'verl'))
    throw new Failure(404, 'trial_not_found', `trial ${trialId} is unknown`, { retryable: false });
  const attempt = proven ?? (keyed || !trial ? null : attemptOfUrl(deps, trial, headers));
  if (!trial || attempt === null) throw unauthorized(`this key does not open trial ${trialId}`);
  if (attempt !== trial.attempt) {
    throw attemptClosed(
      `attempt ${attempt} of trial ${trialId} is closed: attempt ${trial.attempt} is the current one`,
    );
  }
  if (trial.status !== 'created')
    throw attemptClosed(`trial ${trialId} has ended (${trial.outcome ?? trial.status}): it takes no more calls`);
  return trial;
}

/**
 * Returns the attempt when the trial's URL alone opens it (`--compat verl`). Then any text is accepted as a key, except a key of
 * ours. Web pages, which send an origin, are refused.
 */
const attemptOfUrl = ({ settings }: GatewayDeps, trial: TrialNow, headers: Headers): number | null =>
  settings.compat === 'verl' && trial.runId === null && !bearer(headers).startsWith('tg-') && !headers.has('origin')
    ? trial.attempt
    : null;

export const unauthorized = (message: string) =>
  new Failure(401, 'invalid_api_key', message, { retryable: false, headers: { 'www-authenticate': 'Bearer' } });
