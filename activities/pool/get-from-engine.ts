import { Agent } from 'undici';
import { isRelayed, listenerOf, relayPath, relayWorkerOf } from '../../core/engine-url.ts';
import { relayKey } from '../../core/keys.ts';

/** The way to an engine behind a relay worker: the gateway that has the worker, and the deployment's secret. */
export type RelayRoute = { gatewayUrls: readonly string[]; secret: string };

/**
 * Asks an engine on a connection of its own, once, because the gateway's client
 * (`gateway/engines/replica.ts`) exists to keep connections, to ask again and to remember, and runs in workerd too.
 * @throws the connection's error
 */
export async function getFromEngine(
  url: string,
  path: string,
  timeoutMs: number,
  relay: RelayRoute,
): Promise<{ status: number; text: string }> {
  const { socketPath, origin, prefix, headers } = routeTo(url, relay);
  const agent = new Agent(socketPath === undefined ? {} : { connect: { socketPath } });
  try {
    const { statusCode, body } = await agent.request({
      origin,
      path: `${prefix}${path}`,
      method: 'GET',
      headers,
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: statusCode, text: await body.text() };
  } finally {
    await agent.close();
  }
}

type Route = { socketPath: string | undefined; origin: string; prefix: string; headers: Record<string, string> };

function routeTo(url: string, relay: RelayRoute): Route {
  if (isRelayed(url)) {
    const [gateway] = relay.gatewayUrls;
    if (gateway === undefined) throw new Error(`no gateway is known that has the relay worker of ${url}`);
    const { origin, pathname } = new URL(gateway);
    return {
      socketPath: undefined,
      origin,
      prefix: `${pathname.replace(/\/$/, '')}${relayPath(relayWorkerOf(url))}`,
      headers: { authorization: `Bearer ${relayKey(relay.secret)}` },
    };
  }
  const { socketPath, origin } = listenerOf(url);
  return { socketPath, origin, prefix: '', headers: {} };
}
