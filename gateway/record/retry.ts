import { hash } from 'node:crypto';

/** The marks of a request as a try or a retry (invariant 4). */
export type Retry = {
  /** True when the client says that it may have tried before. */
  isRetry: boolean;
  /** True when this client marks its retries. */
  isPossible: boolean;
  /** SHA-256 of the body's bytes. */
  digest: Uint8Array;
  /** The client's `Idempotency-Key`. */
  key: string | null;
};

export function retryOf(headers: Headers, body: Uint8Array): Retry {
  const key = headers.get('idempotency-key')?.slice(0, 255) || null;
  const count = headers.get('x-stainless-retry-count');
  return {
    isRetry: key !== null || Number(count ?? 0) > 0,
    isPossible: key !== null || count !== null,
    digest: hash('sha256', body, 'buffer'),
    key,
  };
}
