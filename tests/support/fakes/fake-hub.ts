import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { vi } from 'vitest';

/**
 * Starts a server in place of Hugging Face's hub, which the code under test finds by `HF_ENDPOINT`. It answers a model's name with the
 * given status and any other with 401, as the hub does.
 */
export async function fakeHub(models: Record<string, number>): Promise<{ asked: string[] } & AsyncDisposable> {
  const asked: string[] = [];
  const server = createServer(({ url = '' }, response) => {
    asked.push(url);
    const name = /^\/(.+)\/resolve\/main\/config\.json$/.exec(url)?.[1] ?? '';
    response.writeHead(models[name] ?? 401).end('{}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  vi.stubEnv('HF_ENDPOINT', `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return {
    asked,
    [Symbol.asyncDispose]: async () => {
      vi.unstubAllEnvs();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
