import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { liveGateway } from './live-gateway.ts';

const never = new AbortController().signal;
const servers: Server[] = [];
afterEach(() => servers.splice(0).forEach((server) => server.close().closeAllConnections()));

async function gateway(status = 200): Promise<string> {
  const server = createServer((_request, response) => response.writeHead(status).end());
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}

test('attempts of trials are spread over all gateways that answer', async () => {
  const urls = [await gateway(), await gateway()];
  const given = [await liveGateway(urls, never), await liveGateway(urls, never)];
  expect(given.toSorted()).toEqual(urls.toSorted());
});

test('an attempt is given a gateway that answers and says that it can serve', async () => {
  const [alive, ill] = [await gateway(), await gateway(503)];
  for (let i = 0; i < 3; i++) expect(await liveGateway(['http://127.0.0.1:9', ill, alive], never)).toBe(alive);
});

test('an attempt fails when no gateway answers in time, and one that is cancelled stops waiting for a gateway', async () => {
  await expect(liveGateway(['http://127.0.0.1:9'], never, 0)).rejects.toThrow(
    'no gateway answers at http://127.0.0.1:9',
  );
  const controller = new AbortController();
  const waiting = liveGateway(['http://127.0.0.1:9'], controller.signal);
  controller.abort(new Error('cancelled'));
  await expect(waiting).rejects.toThrow();
});
