import { Agent } from 'undici';
import { z } from 'zod';

const weightInfo = z.object({ weight_version: z.string() });

/** The version label that an engine says it serves; null when it cannot be asked, or takes longer to answer. */
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
