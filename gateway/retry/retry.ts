import { createHash } from 'node:crypto';

/** Whether a request is a client's own second try, and of what (rule 4). */
export type Retry = {
  isRetry: boolean;
  /** Of the body's bytes: SHA-256. */
  digest: Uint8Array;
  /** The client's `Idempotency-Key`. */
  key: string | null;
};

export function retryOf(headers: Headers, body: Uint8Array): Retry {
  const key = headers.get('idempotency-key')?.slice(0, 255) || null;
  const count = Number(headers.get('x-stainless-retry-count') ?? 0);
  return { isRetry: key !== null || count > 0, digest: createHash('sha256').update(body).digest(), key };
}
