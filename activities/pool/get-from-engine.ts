import { Agent } from 'undici';
import { isRelayed, listenerOf, pathBelow, relayPath, relayWorkerOf } from '../../core/engine-url.ts';
import { relayKey } from '../../core/keys.ts';

/** The way to an engine behind a relay worker: the gateway that has the worker, and the deployment's secret. */
export type RelayRoute = { gatewayUrls: readonly string[]; secret: string };

/**
 * Asks an engine on a connection of its own, once, because the gateway's client
 * (`gateway/engines/replica.ts`) exists to keep connections, to ask again and to remember, and runs in workerd too.
 * @param more headers of the request, such as the key of an `openai+` engine
 * @throws the connection's error
 */
export async function getFromEngine(
  url: string,
  path: string,
  timeoutMs: number,
  relay: RelayRoute,
  more: Record<string, string> = {},
): Promise<{ status: number; text: string }> {
  const { socketPath, origin, pathOf, headers } = routeTo(url, relay);
  const agent = new Agent(socketPath === undefined ? {} : { connect: { socketPath } });
  try {
    const { statusCode, body } = await agent.request({
      origin,
      path: pathOf(path),
      method: 'GET',
      headers: { ...more, ...headers },
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: statusCode, text: await body.text() };
  } finally {
    await agent.close();
  }
}

type Route = {
  socketPath: string | undefined;
  origin: string;
  /** Returns where one of the engine's routes is. */
  pathOf: (route: string) => string;
  headers: Record<string, string>;
};

function routeTo(url: string, relay: RelayRoute): Route {
  if (isRelayed(url)) {
    const [gateway] = relay.gatewayUrls;
    if (gateway === undefined) throw new Error(`no gateway is known that has the relay worker of ${url}`);
    const { origin, pathname } = new URL(gateway);
    return {
      socketPath: undefined,
      origin,
      pathOf: (route) => `${pathname.replace(/\/$/, '')}${relayPath(relayWorkerOf(url))}${route}`,
      headers: { authorization: `Bearer ${relayKey(relay.secret)}` },
    };
  }
  const { socketPath, origin, base } = listenerOf(url);
  return { socketPath, origin, pathOf: (route) => pathBelow(base, route), headers: {} };
}
