import { Hono } from 'hono';

/** That the process serves. Whether engines and database do is seen by a call: it waits for them, then says so. */
export function healthRoutes(): Hono {
  return new Hono().get('/health', (c) => c.json({ status: 'ok', mode: 'local' }));
}
