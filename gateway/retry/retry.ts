/** Whether a request is a client's own second try, and of what (rule 4). */
export type Retry = {
  isRetry: boolean;
  /** Of the body's bytes: SHA-256 in hex. */
  digest: string;
  /** The client's `Idempotency-Key`. */
  key: string | null;
};

export async function retryOf(headers: Headers, body: Uint8Array): Promise<Retry> {
  const key = headers.get('idempotency-key')?.slice(0, 255) || null;
  const count = Number(headers.get('x-stainless-retry-count') ?? 0);
  const hash = await crypto.subtle.digest('SHA-256', new Uint8Array(body));
  const digest = Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { isRetry: key !== null || count > 0, digest, key };
}
