import { Hono } from 'hono';
import { addLoads, asMetrics } from '../counters.ts';
import type { GatewayDeps } from '../deps.ts';

/** That the process serves, and what it has done. Whether engines and database do is seen by a call: it waits for them, then says so. */
export function healthRoutes({ counters, engines, otherThread }: GatewayDeps): Hono {
  return new Hono()
    .get('/health', (c) => c.json({ status: 'ok', mode: 'local' }))
    .get('/metrics', async (c) => {
      const other = await otherThread?.();
      const text = other ? asMetrics(counters.plus(other.counters), addLoads(engines.loads, other.engines)) : asMetrics(counters, engines.loads);
      return c.text(text, 200, { 'content-type': 'text/plain; version=0.0.4' });
    });
}
