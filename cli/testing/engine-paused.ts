import { setTimeout as sleep } from 'node:timers/promises';
import { Agent } from 'undici';
import { z } from 'zod';

const answer = z.object({ is_paused: z.boolean() });

/** Resolves as soon as the engine on this Unix socket says that it is paused. Throws after two minutes. */
export async function enginePaused(socketPath: string): Promise<void> {
  const agent = new Agent({ connect: { socketPath } });
  try {
    for (const end = Date.now() + 120_000; Date.now() < end; await sleep(20)) {
      const { body } = await agent.request({ origin: 'http://engine', path: '/is_paused', method: 'GET' });
      if (answer.parse(await body.json()).is_paused) return;
    }
    throw new Error(`the engine at ${socketPath} was never paused`);
  } finally {
    await agent.close();
  }
}
