import { stringifyExact } from '../store/exact-json.ts';

/** JSON with headers that stay a plain object: the Node server is much faster with those than with a `Headers`. */
export const jsonReply = (body: unknown, headers: Record<string, string>, status = 200): Response =>
  new Response(stringifyExact(body), { status, headers: { 'content-type': 'application/json', ...headers } });
