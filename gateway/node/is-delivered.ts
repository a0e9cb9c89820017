import type { HttpBindings, Http2Bindings } from '@hono/node-server';

/** Resolves to whether the system accepted all of a reply before its connection ended. */
export function isDelivered(outgoing: HttpBindings['outgoing'] | Http2Bindings['outgoing']): Promise<boolean> {
  return new Promise((resolve) => {
    if (outgoing.closed) resolve(outgoing.writableFinished);
    outgoing.once('finish', () => resolve(true));
    outgoing.once('close', () => resolve(false));
  });
}
