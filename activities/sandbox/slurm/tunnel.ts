import { randomBytes, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';

/** Connections without a token in this time are closed. */
const TOKEN_MS = 5000;
const TOKEN_BYTES = 32;
const MAX_CONNECTIONS = 600;

export type Tunnel = AsyncDisposable & { port: number; token: string };

/**
 * Joins a port of this host, for the nodes of a cluster, to a Unix socket. A connection sends the token and a line break, gets a `+`, and is
 * then passed on byte for byte. One with another token is closed.
 */
export async function openTunnel(socketPath: string): Promise<Tunnel> {
  const token = randomBytes(TOKEN_BYTES).toString('hex');
  // Linux limits a socket's path to 107 bytes, and a deployment's folder may be deep.
  const folder = await open(dirname(socketPath));
  const connections = new Set<Socket>();
  const track = (socket: Socket): void => {
    connections.add(socket.on('error', () => {}));
    socket.once('close', () => connections.delete(socket));
  };
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (outside) => {
    track(outside);
    admit(outside, token, () => {
      const inside = connect({ path: `/proc/self/fd/${folder.fd}/${basename(socketPath)}`, allowHalfOpen: true });
      track(inside);
      inside.once('close', () => void (outside.writableEnded || outside.destroy()));
      outside.once('close', () => void (inside.writableEnded || inside.destroy()));
      outside.write('+');
      outside.pipe(inside).pipe(outside);
    });
  });
  server.maxConnections = MAX_CONNECTIONS;
  const close = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    connections.forEach((connection) => connection.destroy());
    await closed;
    await folder.close();
  };
  try {
    server.listen(0);
    await once(server, 'listening');
  } catch (error) {
    await folder.close();
    throw error;
  }
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { port, token, [Symbol.asyncDispose]: close };
}

/** Calls `onAdmitted` when a connection has sent the token. */
function admit(outside: Socket, token: string, onAdmitted: () => void): void {
  const wanted = Buffer.from(`${token}\n`);
  const patience = setTimeout(() => outside.destroy(), TOKEN_MS).unref();
  outside.once('close', () => clearTimeout(patience));
  const tooEarly = (): void => void outside.destroy();
  outside.on('end', tooEarly);
  const look = (): void => {
    const given: unknown = outside.read(wanted.length);
    if (!Buffer.isBuffer(given)) return;
    outside.off('readable', look);
    clearTimeout(patience);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return void outside.destroy();
    outside.off('end', tooEarly);
    onAdmitted();
  };
  outside.on('readable', look);
}
