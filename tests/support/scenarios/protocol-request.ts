import type { ProtocolRequest } from '../../../gateway/protocols/protocol.ts';

/** Returns a request as a protocol parses it. */
export const requestOf = (body: unknown, url = 'http://gateway/'): ProtocolRequest => ({
  url,
  headers: new Headers(),
  bytes: new TextEncoder().encode(JSON.stringify(body)),
});
