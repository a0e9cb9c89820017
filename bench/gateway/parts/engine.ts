import { fileURLToPath } from 'node:url';
import { request } from 'undici';
import type { EngineCounts, EngineMode } from '../engine/main.ts';
import { startChild } from './child.ts';

export type BenchEngine = AsyncDisposable & {
  pid: number;
  url: string;
  /** Sets how it answers from now on. */
  set: (mode: EngineMode) => Promise<void>;
  counts: () => Promise<EngineCounts>;
};

/** Starts the fake engine. */
export async function startEngine(signal: AbortSignal): Promise<BenchEngine> {
  const main = fileURLToPath(new URL('../engine/main.ts', import.meta.url));
  const child = await startChild({
    name: 'the fake engine',
    file: process.execPath,
    args: [main],
    ready: /listening on (\S+)/,
    signal,
  });
  const url = child.readyMatch;
  return {
    pid: child.pid,
    url,
    async set(mode) {
      const reply = await request(`${url}/bench/mode`, { method: 'POST', body: JSON.stringify(mode) });
      await reply.body.dump();
    },
    counts: async () => (await (await request(`${url}/bench/counts`)).body.json()) as EngineCounts,
    [Symbol.asyncDispose]: child.stop,
  };
}
