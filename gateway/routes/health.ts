import { Hono } from 'hono';
import { asMetrics } from '../counters.ts';
import type { GatewayDeps } from '../deps.ts';

/** That the process serves, and what it has done. Whether engines and database do is seen by a call: it waits for them, then says so. */
export function healthRoutes({ counters, engines }: GatewayDeps): Hono {
  return new Hono()
    .get('/health', (c) => c.json({ status: 'ok', mode: 'local' }))
    .get('/metrics', (c) => c.text(asMetrics(counters, engines.loads), 200, { 'content-type': 'text/plain; version=0.0.4' }));
}
