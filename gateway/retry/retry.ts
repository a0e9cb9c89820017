import { hash } from 'node:crypto';

/** The request's information about earlier and later tries (invariant 4). */
export type Retry = {
  /** True when the client says that it may have tried before. */
  isRetry: boolean;
  /** True when this client marks its retries as such. */
  isPossible: boolean;
  /** Of the body's bytes: SHA-256. */
  digest: Uint8Array;
  /** The client's `Idempotency-Key`. */
  key: string | null;
};

export function retryOf(headers: Headers, body: Uint8Array): Retry {
  const key = headers.get('idempotency-key')?.slice(0, 255) || null;
  const count = headers.get('x-stainless-retry-count');
  return { isRetry: key !== null || Number(count ?? 0) > 0, isPossible: key !== null || count !== null, digest: hash('sha256', body, 'buffer'), key };
}
