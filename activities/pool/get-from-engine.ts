import { Agent } from 'undici';

/**
 * Asks an engine (`http://host:port` or `unix:/path.sock`) on a connection of its own, once, because the gateway's client
 * (`gateway/engines/replica.ts`) exists to keep connections, to ask again and to remember, and runs in workerd too.
 * @throws the connection's error
 */
export async function getFromEngine(
  url: string,
  path: string,
  timeoutMs: number,
): Promise<{ status: number; text: string }> {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : null;
  const agent = new Agent(socketPath ? { connect: { socketPath } } : {});
  try {
    const { statusCode, body } = await agent.request({
      origin: socketPath ? 'http://engine' : new URL(url).origin,
      path,
      method: 'GET',
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: statusCode, text: await body.text() };
  } finally {
    await agent.close();
  }
}
