import { Failure } from '../failure.ts';

/**
 * Refuses a request that a web page of another origin made a browser send, also one of this machine. A browser names the origin of the page;
 * other programs name none. For a gateway without an admin key, which a page of another origin would not have.
 */
export function requireSameOrigin({ url, headers }: Pick<Request, 'url' | 'headers'>): void {
  const site = headers.get('sec-fetch-site');
  const origin = headers.get('origin');
  // What the browser itself says of the two comes first.
  const isOwn = site === null ? origin === null || hostOf(origin) === hostOf(url) : site === 'same-origin';
  if (!isOwn)
    throw new Failure(
      403,
      'other_origin',
      'a page of another origin may not do this: use the page of this gateway at /ui/, or a program',
      { retryable: false },
    );
}

/** Refuses what a form of another site can send: a browser sends JSON elsewhere only after it asked. */
export function requireJson(headers: Headers): void {
  if (/^application\/json\s*(?:;|$)/i.test(headers.get('content-type') ?? '')) return;
  throw new Failure(
    415,
    'unsupported_media_type',
    'the body must be JSON: send it with `content-type: application/json`',
    { retryable: false },
  );
}

const hostOf = (url: string): string | null => (URL.canParse(url) ? new URL(url).host : null);
