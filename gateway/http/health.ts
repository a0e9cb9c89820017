import { Hono } from 'hono';
import { countAttempts } from '../../store/queries/count-attempts.ts';
import { attemptMetrics } from './attempt-metrics.ts';
import { mayRead } from './auth.ts';
import { addLoads, asMetrics } from '../calls/counters.ts';
import type { DiscoveryState, GatewayDeps } from './deps.ts';
import { sleep } from '../../core/sleep.ts';

/** A scraper that asks more often gets the last counts. The route does not wait for a database that does not answer. */
const COUNTED_MS = 15_000;
const WAIT_MS = 2_000;

/** Reports that the process serves, and its counts. It does not check engines and database; calls wait for those and then report them. */
export function healthRoutes(deps: GatewayDeps): Hono {
  const { counters, engines, otherThread } = deps;
  let counted: { at: number; lines: Promise<string> } | null = null;
  const countedAttempts = (): Promise<string> => {
    if (!counted || Date.now() - counted.at > COUNTED_MS) {
      const lines = Promise.race([countAttempts(deps.db).then(attemptMetrics), sleep(WAIT_MS).then(() => '')]).catch(
        () => '',
      );
      counted = { at: Date.now(), lines };
    }
    return counted.lines;
  };
  return new Hono()
    .get('/health', (c) => {
      const isReader = mayRead(deps, c.req.raw.headers);
      const found = deps.discovery().map((state) => described(state, isReader));
      return c.json({
        status: 'ok',
        ...(deps.relay ? { mode: 'relay', connected_workers: deps.relay.connected } : { mode: 'local' }),
        ...(found.length > 0 ? { engine_discovery: found } : {}),
      });
    })
    .get('/metrics', async (c) => {
      const other = await otherThread?.();
      const calls = other
        ? asMetrics(counters.plus(other.counters), addLoads(engines.loads, other.engines), [
            engines.roomWaits,
            other.roomWaits,
          ])
        : asMetrics(counters, engines.loads, [engines.roomWaits]);
      // Agents can reach this route too, and must not learn how trials end.
      const attempts = mayRead(deps, c.req.raw.headers) ? await countedAttempts() : '';
      return c.text(calls + attempts, 200, { 'content-type': 'text/plain; version=0.0.4' });
    });
}

/** Agents can reach the route too: the reason, which has paths and addresses, is for those who may read. */
const described = ({ foundBy, engines, failure }: DiscoveryState, isReader: boolean) => ({
  found_by: foundBy,
  status: failure ? 'failing' : 'ok',
  engines,
  ...(failure ? { failing_since: failure.since.toISOString(), ...(isReader ? { reason: failure.message } : {}) } : {}),
});
