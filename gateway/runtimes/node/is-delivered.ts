import type { HttpBindings, Http2Bindings } from '@hono/node-server';

/** Resolves when a reply's connection has ended: true if the system accepted all of the reply before. */
export function isDelivered(outgoing: HttpBindings['outgoing'] | Http2Bindings['outgoing']): Promise<boolean> {
  return new Promise((resolve) => {
    if (outgoing.closed) resolve(outgoing.writableFinished);
    outgoing.once('finish', () => resolve(true));
    outgoing.once('close', () => resolve(false));
  });
}
