import { once } from 'node:events';
import { connect, createServer } from 'node:net';

/**
 * Stands in for Cloudflare's edge in one respect: a client that hangs up ends its request at once. workerd's own server treats a closed
 * connection as half open and notices the end only when it writes; a reset one it notices at once (cloudflare/workerd#5062: "The same
 * worker does log the message in production").
 */
export async function startEdge(port: number, own = 0): Promise<{ url: string; close: () => Promise<void> }> {
  const open = new Set<{ destroy: () => void }>();
  const server = createServer((client) => {
    const worker = connect(port, '127.0.0.1');
    open.add(client).add(worker);
    client.on('end', () => worker.resetAndDestroy());
    client.on('close', () => worker.resetAndDestroy());
    client.on('error', () => worker.resetAndDestroy());
    worker.on('error', () => client.destroy());
    worker.on('close', () => {
      open.delete(client);
      open.delete(worker);
      client.destroySoon();
    });
    client.pipe(worker, { end: false });
    worker.pipe(client);
  });
  server.listen(own, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  const close = async () => {
    for (const socket of open) socket.destroy();
    server.close();
    await once(server, 'close');
  };
  return { url: `http://127.0.0.1:${address.port}`, close };
}
