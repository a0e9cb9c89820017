import { Agent } from 'undici';
import { weightVersionIn, WEIGHT_INFO } from '../../core/weight-info.ts';

/**
 * Returns the weight version that an engine reports; null when it does not answer in time. It asks on a connection of its own, once, because
 * the gateway's client (`gateway/engines/replica.ts`) exists to keep connections, to ask again and to remember, and runs in workerd too.
 */
export async function readWeightVersion(url: string, timeoutMs = 5_000): Promise<string | null> {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : null;
  const agent = new Agent(socketPath ? { connect: { socketPath } } : {});
  try {
    const { statusCode, body } = await agent.request({
      origin: socketPath ? 'http://engine' : new URL(url).origin,
      path: WEIGHT_INFO,
      method: 'GET',
      signal: AbortSignal.timeout(timeoutMs),
    });
    const weightVersion = weightVersionIn(await body.json());
    return statusCode === 200 ? weightVersion : null;
  } catch {
    return null;
  } finally {
    await agent.close();
  }
}
