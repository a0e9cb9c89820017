import { Agent } from 'undici';
import { z } from 'zod';

const weightInfo = z.object({ weight_version: z.string() });

/** Returns the version label that an engine reports; null when it does not answer in time. */
export async function readEngineLabel(url: string, patienceMs = 5_000): Promise<string | null> {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : null;
  const agent = new Agent(socketPath ? { connect: { socketPath } } : {});
  try {
    const { statusCode, body } = await agent.request({
      origin: socketPath ? 'http://engine' : new URL(url).origin,
      path: '/weight_info',
      method: 'GET',
      signal: AbortSignal.timeout(patienceMs),
    });
    const reply = weightInfo.safeParse(await body.json());
    return statusCode === 200 && reply.success ? reply.data.weight_version : null;
  } catch {
    return null;
  } finally {
    await agent.close();
  }
}
