import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { TrialgateError } from '../../store/errors.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';

/** How many ports are drawn from, and the lowest that is drawn. */
const SPAN = 12_000;
const LOWEST = 2_000;

/** Null when it is taken, or not ours to use. */
async function listen(port: number, host: string): Promise<Server | null> {
  // Who comes early, such as an agent of a gateway that died, is refused: an open connection would keep the port from its component.
  const server = createServer((socket) => socket.destroy()).unref();
  return new Promise((resolve) => {
    server.once('error', () => resolve(null));
    server.listen({ port, host, exclusive: true }, () => resolve(server));
  });
}

const close = (server: Server): Promise<void> => new Promise((resolve) => server.close(() => resolve()));

async function isFree(port: number, host: string): Promise<boolean> {
  const server = await listen(port, host);
  if (server) await close(server);
  return server !== null;
}

/**
 * The lowest port that the kernel hands to outgoing connections: from there on one could take a component's port while it restarts.
 * Linux's own default where it is not told, or where next to nothing is below it.
 */
function lowestOutgoing(): number {
  let told: number;
  try {
    told = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/)[0]);
  } catch {
    told = 0;
  }
  return told > LOWEST + 1_000 ? told : 32_768;
}

async function listenAnywhere(host: string): Promise<Server & { port: number }> {
  const end = lowestOutgoing();
  const start = Math.max(LOWEST, end - SPAN);
  for (let tries = 0; tries < 100; tries++) {
    const port = randomInt(start, end);
    const server = await listen(port, host);
    if (server) return Object.assign(server, { port });
  }
  throw new TrialgateError('missing_prerequisite', `no free port on ${host} between ${start} and ${end}`);
}

/** A free port of those that no outgoing connection takes. */
export async function freePort(host: string): Promise<number> {
  const server = await listenAnywhere(host);
  await close(server);
  return server.port;
}

/** Ports that were chosen for components which start later: listened on until then, so that nothing else takes them. */
export class HeldPorts {
  readonly #held = new Map<number, Server>();

  /** The port to use: the one asked for, or for 0 the one kept from before, or a free one. Those chosen here are held. */
  async choose(wanted: number, kept: number | undefined, host: string): Promise<number> {
    if (wanted !== 0) return wanted;
    const again = kept === undefined ? null : await listen(kept, host);
    const server = again && kept !== undefined ? Object.assign(again, { port: kept }) : await listenAnywhere(host);
    this.#held.set(server.port, server);
    return server.port;
  }

  /**
   * Lets go of it for the component that starts now.
   * @throws TrialgateError naming the port, who needs it and how to choose another, where something else listens on it.
   */
  async handOver(port: number, host: string, who: string, key: SettingKey): Promise<void> {
    const server = this.#held.get(port);
    this.#held.delete(port);
    if (server) await close(server);
    await requireFree(port, host, who, key);
  }

  /** Lets go of all. */
  async close(): Promise<void> {
    await Promise.all([...this.#held.values()].map(close));
    this.#held.clear();
  }
}

/** @throws TrialgateError naming the port, who needs it and how to choose another. */
export async function requireFree(port: number, host: string, who: string, key: SettingKey): Promise<void> {
  if (await isFree(port, host)) return;
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken or may not be used. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
