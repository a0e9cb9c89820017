import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { TrialgateError } from './errors.ts';

/** The number of ports to draw from, and the lowest one. */
const SPAN = 12_000;
const LOWEST = 2_000;

export type HeldPort = { port: number; close: () => Promise<void> };

/** Listens on a port. Returns null when it is taken or not permitted. */
export async function holdPort(port: number, host: string): Promise<HeldPort | null> {
  // An early client, such as an agent of a gateway that died, is refused, because an open connection would keep the port from its component.
  const server = createServer((socket) => socket.destroy()).unref();
  return new Promise((resolve) => {
    server.once('error', () => resolve(null));
    server.listen({ port, host, exclusive: true }, () =>
      resolve({ port, close: () => new Promise((closed) => server.close(() => closed())) }),
    );
  });
}

/**
 * Returns the lowest port that the kernel gives to outgoing connections. Such a connection could take a component's port while the
 * component restarts. Returns Linux's default if the setting cannot be read or leaves too few ports below it.
 */
function lowestOutgoing(): number {
  let configured: number;
  try {
    configured = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/)[0]);
  } catch {
    configured = 0;
  }
  return configured > LOWEST + 1_000 ? configured : 32_768;
}

/** Listens on a free port that no outgoing connection takes. */
export async function holdFreePort(host: string): Promise<HeldPort> {
  const end = lowestOutgoing();
  const start = Math.max(LOWEST, end - SPAN);
  for (let tries = 0; tries < 100; tries++) {
    const held = await holdPort(randomInt(start, end), host);
    if (held) return held;
  }
  throw new TrialgateError('missing_prerequisite', `no free port on ${host} between ${start} and ${end}`);
}

/** Returns a free port that no outgoing connection takes. */
export async function freePort(host: string): Promise<number> {
  const held = await holdFreePort(host);
  await held.close();
  return held.port;
}
