import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { TrialgateError } from '../../store/errors.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';

/** The number of ports to draw from, and the lowest one. */
const SPAN = 12_000;
const LOWEST = 2_000;

type HeldPort = { port: number; close: () => Promise<void> };

/** Listens on a port. Returns null when it is taken or not permitted. */
async function listen(port: number, host: string): Promise<HeldPort | null> {
  // An early client, such as an agent of a gateway that died, is refused, because an open connection would keep the port from its component.
  const server = createServer((socket) => socket.destroy()).unref();
  return new Promise((resolve) => {
    server.once('error', () => resolve(null));
    server.listen({ port, host, exclusive: true }, () => resolve({ port, close: () => new Promise((closed) => server.close(() => closed())) }));
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

async function listenAnywhere(host: string): Promise<HeldPort> {
  const end = lowestOutgoing();
  const start = Math.max(LOWEST, end - SPAN);
  for (let tries = 0; tries < 100; tries++) {
    const held = await listen(randomInt(start, end), host);
    if (held) return held;
  }
  throw new TrialgateError('missing_prerequisite', `no free port on ${host} between ${start} and ${end}`);
}

/** Returns a free port that no outgoing connection takes. */
export async function freePort(host: string): Promise<number> {
  const held = await listenAnywhere(host);
  await held.close();
  return held.port;
}

/** Holds ports for components that start later, by listening on them, so that nothing else takes them. */
export class HeldPorts {
  readonly #held = new Map<number, HeldPort>();

  /** Returns the port to use: `wanted`, or for 0 the `kept` one if it is free, else a free one, which is then held. */
  async choose(wanted: number, kept: number | undefined, host: string): Promise<number> {
    if (wanted !== 0) return wanted;
    const held = (kept === undefined ? null : await listen(kept, host)) ?? (await listenAnywhere(host));
    this.#held.set(held.port, held);
    return held.port;
  }

  /**
   * Releases a port for the component that starts now.
   * @throws TrialgateError when something else listens on it; the message has the port, who needs it and how to choose another.
   */
  async handOver(port: number, host: string, who: string, key: SettingKey): Promise<void> {
    const held = this.#held.get(port);
    this.#held.delete(port);
    await held?.close();
    await requireFree(port, host, who, key);
  }

  /** Releases all held ports. */
  async close(): Promise<void> {
    await Promise.all([...this.#held.values()].map((held) => held.close()));
    this.#held.clear();
  }
}

/** @throws TrialgateError when the port is not free; the message has the port, who needs it and how to choose another. */
export async function requireFree(port: number, host: string, who: string, key: SettingKey): Promise<void> {
  const free = await listen(port, host);
  if (free) return free.close();
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken or may not be used. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
