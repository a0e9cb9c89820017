import { createHmac, timingSafeEqual } from 'node:crypto';

/**
 * The credential of one attempt: an HMAC-SHA256 of the deployment's secret over (trial, attempt).
 * Whoever holds the secret derives it; none is stored.
 */
export function attemptKey(secret: string, trialId: string, attempt: number): string {
  const digest = createHmac('sha256', secret).update(`${trialId}\n${attempt}`).digest('base64url');
  return `tg-${attempt}-${digest}`;
}

/** The attempt that `key` proves for this trial, or null when it proves none. Constant-time. */
export function attemptOfKey(secret: string, trialId: string, key: string): number | null {
  const attempt = Number(/^tg-(\d{1,9})-/.exec(key)?.[1] ?? 0);
  return attempt > 0 && sameText(key, attemptKey(secret, trialId, attempt)) ? attempt : null;
}

export function sameText(a: string, b: string): boolean {
  const [x, y] = [Buffer.from(a), Buffer.from(b)];
  return x.length === y.length && timingSafeEqual(x, y);
}
