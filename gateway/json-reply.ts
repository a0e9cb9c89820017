import { stringifyExact } from '../core/exact-json.ts';

/** Returns a JSON reply. Its headers stay a plain object, with which the Node server is much faster than with a `Headers`. */
export const jsonReply = (body: unknown, headers: Record<string, string>, status = 200): Response =>
  new Response(stringifyExact(body), { status, headers: { 'content-type': 'application/json', ...headers } });
