/** The part of `traceparent` that all versions of W3C Trace Context share: version, trace, span and flags. Ids of zeros are none, and version ff never is. */
const SHARED = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=$|-)/;
const VERSION_0_LENGTH = 55;

/** Returns the client's span as its `traceparent` names it, without what a later version adds; null when there is none that is valid. */
export function traceparentOf(headers: Headers): string | null {
  const given = headers.get('traceparent')?.trim();
  const shared = given && SHARED.exec(given)?.[0];
  if (!given || !shared || (given.startsWith('00') && given.length > VERSION_0_LENGTH)) return null;
  return shared;
}
