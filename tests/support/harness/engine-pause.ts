import { setTimeout as sleep } from 'node:timers/promises';
import { Agent } from 'undici';
import { z } from 'zod';

const answer = z.object({ is_paused: z.boolean() });

/** Waits until the engine on this Unix socket reports that it is paused. Throws after two minutes. */
export const enginePaused = (socketPath: string): Promise<void> =>
  withEngine(socketPath, async (ask) => {
    for (const end = Date.now() + 120_000; Date.now() < end; await sleep(20)) {
      if (answer.parse(JSON.parse(await ask('GET', '/is_paused'))).is_paused) return;
    }
    throw new Error(`the engine at ${socketPath} was never paused`);
  });

const PAUSE = '/pause?mode=keep&clear_cache=false';

/** Pauses an engine that is killed next, so that requests are under way then. */
export const pauseEngine = (socketPath: string): Promise<void> =>
  withEngine(socketPath, async (ask) => void (await ask('POST', PAUSE)));

/** Keeps the engine paused while `body` runs, so that requests stay under way however fast or busy the machine is. */
export const whileEnginePaused = <T>(socketPath: string, body: () => Promise<T>): Promise<T> =>
  withEngine(socketPath, async (ask) => {
    await ask('POST', PAUSE);
    return await body().finally(() => ask('POST', '/resume'));
  });

type Ask = (method: 'GET' | 'POST', path: string) => Promise<string>;

async function withEngine<T>(socketPath: string, body: (ask: Ask) => Promise<T>): Promise<T> {
  const agent = new Agent({ connect: { socketPath } });
  try {
    return await body(async (method, path) => {
      const { statusCode, body: reply } = await agent.request({ origin: 'http://engine', path, method });
      const text = await reply.text();
      if (statusCode !== 200) throw new Error(`${method} ${path} was answered ${statusCode}: ${text}`);
      return text;
    });
  } finally {
    await agent.close();
  }
}
