import { Agent } from 'undici';
import { z } from 'zod';

const weightInfo = z.object({ weight_version: z.string() });

/** The version label that an engine says it serves; null when it cannot be asked. */
export async function readEngineLabel(url: string): Promise<string | null> {
  const socketPath = url.startsWith('unix:') ? url.slice('unix:'.length) : null;
  const agent = new Agent(socketPath ? { connect: { socketPath } } : {});
  try {
    const { statusCode, body } = await agent.request({
      origin: socketPath ? 'http://engine' : new URL(url).origin,
      path: '/weight_info',
      method: 'GET',
      signal: AbortSignal.timeout(5_000),
    });
    const reply = weightInfo.safeParse(await body.json());
    return statusCode === 200 && reply.success ? reply.data.weight_version : null;
  } catch {
    return null;
  } finally {
    await agent.close();
  }
}
