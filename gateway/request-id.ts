import type { Context, Next } from 'hono';

/** Returns the header with the id by which a client can name a reply to the gateway's operators. */
export const requestIdHeader = (
  protocol: { idHeader: string } | null,
  id: string = crypto.randomUUID(),
): Record<string, string> => ({ [protocol?.idHeader ?? 'x-request-id']: id });

/** Returns the headers of a call's reply. */
export const callHeaders = (protocol: { idHeader: string }, callId: string): Record<string, string> => ({
  'x-trialgate-call': callId,
  ...requestIdHeader(protocol, callId),
});

/** Adds an id to a reply that belongs to no call. A call's reply already has its call's id, and changing headers here would slow the Node server. */
export async function withRequestId(c: Context, next: Next): Promise<void> {
  await next();
  if (!c.res.headers.has('x-request-id') && !c.res.headers.has('request-id'))
    c.res.headers.set('x-request-id', crypto.randomUUID());
}
