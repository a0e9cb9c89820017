import type { Context, Next } from 'hono';

/** The header by which a client names a reply to those who run the gateway: Anthropic's clients read one of their own. */
export const requestIdHeader = (protocol: { name: string } | null, id: string = crypto.randomUUID()): Record<string, string> =>
  protocol?.name === 'messages' ? { 'request-id': id } : { 'x-request-id': id };

/** The headers of a call's reply. */
export const callHeaders = (protocol: { name: string }, callId: string): Record<string, string> => ({ 'x-trialgate-call': callId, ...requestIdHeader(protocol, callId) });

/** Gives a reply that is no call's an id. A call's reply has its call's: touching those headers here would slow the Node server. */
export async function withRequestId(c: Context, next: Next): Promise<void> {
  await next();
  if (!c.res.headers.has('x-request-id') && !c.res.headers.has('request-id')) c.res.headers.set('x-request-id', crypto.randomUUID());
}
