import { Hono, type Context } from 'hono';
import { relayPath } from '../../core/engine-url.ts';
import { relayKey, sameText } from '../../core/keys.ts';
import { Failure } from '../failure.ts';
import { EPOCH_HEADER, NO_REPLY } from '../relay/hello.ts';
import { bearer, requireAdmin, unauthorized } from './auth.ts';
import type { GatewayDeps } from './deps.ts';
import { streamOf } from './stream-of.ts';

const WORKER = '/relay/workers/:worker{[^/]+}';

type RelayDeps = Pick<GatewayDeps, 'relay' | 'relayElsewhere' | 'secret' | 'adminKey'>;

/**
 * Lists the relay workers, and passes requests on to their engines: for the trainer, for the activities that look after engines, and for the
 * gateway's heavy thread and other gateways. The worker refuses what they do not need (`relay/relayed-routes.ts`).
 */
export function relayRoutes(deps: RelayDeps): Hono {
  const app = new Hono();
  const { relay, relayElsewhere, secret } = deps;
  if (!relay) return app;
  app.get('/relay/workers', (c) => {
    requireAdmin(deps, c.req.raw.headers);
    return c.json({ workers: relay.workers });
  });
  const ownKey = relayKey(secret);
  const isOfDeployment = (headers: Headers) => sameText(bearer(headers), ownKey);
  app.delete(WORKER, (c) => {
    if (!isOfDeployment(c.req.raw.headers)) throw unauthorized('only a gateway of this deployment may do this');
    relay.replace(c.req.param('worker'));
    return c.json({});
  });
  app.on(['GET', 'POST'], `${WORKER}/*`, async (c: Context) => {
    const { headers, method, signal } = c.req.raw;
    const isOurs = isOfDeployment(headers);
    if (!isOurs) requireAdmin(deps, headers);
    const id = c.req.param('worker') ?? '';
    const epoch = headers.get(EPOCH_HEADER);
    // A request with an epoch comes from another gateway. It is not passed on again, so it cannot go in a circle.
    const worker =
      epoch === null ? (relay.worker(id) ?? (await relayElsewhere?.(id))) : relay.worker(id, Number(epoch));
    if (!worker)
      throw new Failure(isOurs ? NO_REPLY : 404, 'not_found', `no relay worker ${id} is connected to this gateway`);
    const { pathname, search } = new URL(c.req.url);
    const path = pathname.slice(relayPath(id).length) + search;
    const pass =
      method === 'POST'
        ? worker.send({ method, path, body: await c.req.text(), signal })
        : worker.ask({ method: 'GET', path, signal });
    const reply = await pass.catch((error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      const message = `the engine of relay worker ${id} does not answer: ${why}`;
      throw new Failure(isOurs ? NO_REPLY : 502, 'engine_unavailable', message, { cause: error });
    });
    return new Response(streamOf(reply.body), {
      status: reply.status,
      headers: { 'content-type': reply.contentType },
    });
  });
  return app;
}
