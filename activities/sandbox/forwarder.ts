import { chmod, writeFile } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { GatewayWatch, type GatewayFailures } from './gateway-watch.ts';
import { listenIn } from './listen-in.ts';
import { GATEWAY_SOCKET, type GatewayAddress } from './network.ts';
import { Pace } from './pace.ts';

/** Connections of one sandbox above this number are closed at once. The sandbox's relay holds fewer and lets the others wait. */
const MAX_CONNECTIONS = 600;
/** This limit keeps a sandbox that opens connections in a loop from using up its host's ports. The host keeps each port for a minute. */
const PACE = { perSecond: 100, burst: 512 };

export type Forwarder = {
  /** The Unix socket to mount into the sandbox. */
  socket: string;
  /** The sandbox's own /etc/hosts. It is null where no name is needed. */
  hosts: string | null;
  /** Returns true when the relay inside the sandbox has reported that it works. */
  relayStarted: () => boolean;
  /**
   * Ends all connections. Returns the number of connections that the gateway's side refused or broke off. This is evidence from the
   * host, and a sandbox cannot forge it.
   */
  close: () => Promise<GatewayFailures>;
};

/** Connects every connection of a Unix socket in `folder` to the gateway, byte for byte. */
export async function openForwarder({ host, port, name }: GatewayAddress, folder: string): Promise<Forwarder> {
  const connections = new Set<Socket>();
  const watch = new GatewayWatch(host, port);
  let relayStarted = false;

  const track = (socket: Socket): void => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
  };
  const pace = new Pace(PACE.perSecond, PACE.burst);
  const forward = (inside: Socket): void => {
    if (inside.destroyed) return;
    const gateway = connect({ host, port, allowHalfOpen: true, noDelay: true });
    track(gateway);
    let isOpen = false;
    gateway.once('connect', () => (isOpen = true));
    gateway.on('error', (error: NodeJS.ErrnoException) => {
      if (!isOpen) watch.refused(error);
      else if (!inside.destroyed) watch.ended();
      inside.destroy();
    });
    gateway.once('end', () => inside.readableEnded || watch.ended());
    inside.on('error', () => gateway.destroy());
    inside.once('close', () => void (gateway.writableEnded || gateway.destroy()));
    inside.pipe(gateway).pipe(inside);
  };
  const server = createServer({ allowHalfOpen: true }, (inside) => {
    track(inside);
    if (!relayStarted) {
      relayStarted = true;
      inside.destroy();
      return;
    }
    inside.on('error', () => {});
    const delay = pace.delay(performance.now());
    if (delay === 0) forward(inside);
    else setTimeout(forward, delay, inside).unref();
  });
  server.maxConnections = MAX_CONNECTIONS;

  const socket = join(folder, GATEWAY_SOCKET);
  const stop = await listenIn(server, folder, GATEWAY_SOCKET);
  const hosts = name === null ? null : join(folder, 'hosts');
  try {
    // The folder is closed to other users. The sandbox's own user may only connect.
    await chmod(socket, 0o666);
    if (hosts) {
      await writeFile(hosts, `127.0.0.1 localhost ${name}\n::1 localhost\n`);
      // The sandbox's own user must read this file, also where the worker's umask closes new files to others.
      await chmod(hosts, 0o644);
    }
  } catch (error) {
    await stop();
    throw error;
  }

  return {
    socket,
    hosts,
    relayStarted: () => relayStarted,
    close: async () => {
      const stopped = stop();
      connections.forEach((connection) => connection.destroy());
      await stopped;
      return await watch.failures();
    },
  };
}
