import { createHmac, timingSafeEqual } from 'node:crypto';

/** Base64url of 32 bytes. */
const PROOF_LENGTH = 43;

/**
 * The credential of one attempt, `tg-{attempt}-{trial, base64url}-{proof}`: the proof is an HMAC-SHA256 of the deployment's
 * secret over (trial, attempt). Whoever holds the secret derives it; none is stored. It names its trial, for agents whose URL cannot.
 */
export function attemptKey(secret: string, trialId: string, attempt: number): string {
  return named(trialId, attempt, proofOf(secret, trialId, attempt));
}

/** The attempt that `key` proves for this trial, or null when it proves none. The proof is compared in constant time. A key may leave the trial out. */
export function attemptOfKey(secret: string, trialId: string, key: string): number | null {
  const attempt = Number(/^tg-(\d{1,9})-/.exec(key)?.[1] ?? 0);
  const name = key.slice(0, -PROOF_LENGTH);
  if (attempt === 0 || (name !== `tg-${attempt}-` && name !== named(trialId, attempt, ''))) return null;
  return isProof(key.slice(-PROOF_LENGTH), secret, trialId, attempt) ? attempt : null;
}

/** Each call of an agent brings the same proof, so the newest ones that were right are kept instead of computed again. */
const PROVEN = new Map<string, string>();
const MOST_PROVEN = 10_000;

function isProof(given: string, secret: string, trialId: string, attempt: number): boolean {
  const name = `${secret}\n${trialId}\n${attempt}`;
  const known = PROVEN.get(name);
  const proof = known ?? proofOf(secret, trialId, attempt);
  if (!sameText(given, proof)) return false;
  if (known !== undefined) return true;
  const [oldest] = PROVEN.keys();
  if (PROVEN.size >= MOST_PROVEN && oldest !== undefined) PROVEN.delete(oldest);
  PROVEN.set(name, proof);
  return true;
}

/** The trial that a key names and proves, or null. */
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
export const fingerprintOf = (secret: string): string => createHmac('sha256', secret).update('the deployment of this secret').digest('base64url');

const named = (trialId: string, attempt: number, proof: string): string => `tg-${attempt}-${Buffer.from(trialId).toString('base64url')}-${proof}`;

const proofOf = (secret: string, trialId: string, attempt: number): string =>
  createHmac('sha256', secret).update(`${trialId}\n${attempt}`).digest('base64url');
