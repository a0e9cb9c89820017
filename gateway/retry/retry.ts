import { createHash } from 'node:crypto';

/** What a request says of tries before it and after it (rule 4). */
export type Retry = {
  /** Its client says that it may have tried before. */
  isRetry: boolean;
  /** Its client is one that says so when it tries again. */
  isPossible: boolean;
  /** Of the body's bytes: SHA-256. */
  digest: Uint8Array;
  /** The client's `Idempotency-Key`. */
  key: string | null;
};

export function retryOf(headers: Headers, body: Uint8Array): Retry {
  const key = headers.get('idempotency-key')?.slice(0, 255) || null;
  const count = headers.get('x-stainless-retry-count');
  return { isRetry: key !== null || Number(count ?? 0) > 0, isPossible: key !== null || count !== null, digest: createHash('sha256').update(body).digest(), key };
}
