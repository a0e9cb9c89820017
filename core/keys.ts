import { createHmac, timingSafeEqual } from 'node:crypto';
import { RecentMap } from './recent-map.ts';

/** The length of 32 bytes in base64url. */
const PROOF_LENGTH = 43;

/**
 * Returns the key of one attempt: `tg-{attempt}-{trial, base64url}-{proof}`. The proof is an HMAC-SHA256 of (trial, attempt) under the
 * deployment's secret, so a key is derived where it is needed and never stored. The key names its trial for agents whose URL cannot.
 */
export function attemptKey(secret: string, trialId: string, attempt: number): string {
  return named(trialId, attempt, proofOf(secret, trialId, attempt));
}

/** Returns the attempt of this trial that the key proves, or null. It compares keys in constant time. A key may leave the trial out. */
export function attemptOfKey(secret: string, trialId: string, key: string): number | null {
  const attempt = Number(/^tg-(\d{1,9})-/.exec(key)?.[1] ?? 0);
  if (attempt === 0) return null;
  const proven = `${secret}\n${trialId}\n${attempt}`;
  const known = PROVEN.get(proven);
  const right = known ?? attemptKey(secret, trialId, attempt);
  if (!sameText(key, right) && !sameText(key, `tg-${attempt}-${right.slice(-PROOF_LENGTH)}`)) return null;
  if (known === undefined) PROVEN.set(proven, right);
  return attempt;
}

/** Returns a name for the trial from which nobody learns its id. It is the same in all gateways of the deployment, and no part of a key. */
export const affinityId = (secret: string, trialId: string): string =>
  createHmac('sha256', secret)
    .update(`the affinity of trial\n${trialId}`)
    .digest('base64url')
    .slice(0, AFFINITY_LENGTH);

const AFFINITY_LENGTH = 22;

/** The latest attempts whose key was given. Each call of an agent has the same key, so it is not computed again. */
const PROVEN = new RecentMap<string, string>(10_000);

/** Returns the trial that a key names and proves, or null. */
export function trialOfKey(secret: string, key: string): string | null {
  const name = /^tg-\d{1,9}-(.+)-/.exec(key.slice(0, -PROOF_LENGTH))?.[1];
  if (name === undefined) return null;
  const trialId = Buffer.from(name, 'base64url').toString();
  return attemptOfKey(secret, trialId, key) === null ? null : trialId;
}

export function sameText(a: string, b: string): boolean {
  const [x, y] = [Buffer.from(a), Buffer.from(b)];
  return x.length === y.length && timingSafeEqual(x, y);
}

/** Returns a keyed hash that identifies a secret without revealing it. It cannot equal an attempt's proof, which hashes two lines. */
export const fingerprintOf = (secret: string): string =>
  createHmac('sha256', secret).update('the deployment of this secret').digest('base64url');

/**
 * Returns the key with which a program claims a run's groups and reports their rewards: `tgr-{proof}`. An agent has only its attempt's key,
 * so it cannot reward itself (invariant 6). A trial's id has no spaces, so the proof cannot equal an attempt's.
 */
export const runKey = (secret: string, runId: string): string =>
  `tgr-${createHmac('sha256', secret).update(`the key of run\n${runId}`).digest('base64url')}`;

/**
 * Returns the key with which the deployment's own processes reach engines behind relay workers: `tge-{proof}`. It opens nothing else of the
 * gateway.
 */
export const relayKey = (secret: string): string =>
  `tge-${createHmac('sha256', secret).update('the key of the engines behind relay workers').digest('base64url')}`;

const named = (trialId: string, attempt: number, proof: string): string =>
  `tg-${attempt}-${Buffer.from(trialId).toString('base64url')}-${proof}`;

const proofOf = (secret: string, trialId: string, attempt: number): string =>
  createHmac('sha256', secret).update(`${trialId}\n${attempt}`).digest('base64url');
