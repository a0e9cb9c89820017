import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { TrialgateError } from '../../store/errors.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';

/** How many ports are drawn from, and the lowest that is drawn. */
const SPAN = 12_000;
const LOWEST = 2_000;

type Held = { port: number; close: () => Promise<void> };

/** Null when it is taken, or not ours to use. */
async function listen(port: number, host: string): Promise<Held | null> {
  // Who comes early, such as an agent of a gateway that died, is refused: an open connection would keep the port from its component.
  const server = createServer((socket) => socket.destroy()).unref();
  return new Promise((resolve) => {
    server.once('error', () => resolve(null));
    server.listen({ port, host, exclusive: true }, () => resolve({ port, close: () => new Promise((closed) => server.close(() => closed())) }));
  });
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

async function listenAnywhere(host: string): Promise<Held> {
  const end = lowestOutgoing();
  const start = Math.max(LOWEST, end - SPAN);
  for (let tries = 0; tries < 100; tries++) {
    const held = await listen(randomInt(start, end), host);
    if (held) return held;
  }
  throw new TrialgateError('missing_prerequisite', `no free port on ${host} between ${start} and ${end}`);
}

/** A free port of those that no outgoing connection takes. */
export async function freePort(host: string): Promise<number> {
  const held = await listenAnywhere(host);
  await held.close();
  return held.port;
}

/** Ports that were chosen for components which start later: listened on until then, so that nothing else takes them. */
export class HeldPorts {
  readonly #held = new Map<number, Held>();

  /** The port to use: the one asked for, or for 0 the one kept from before, or a free one. Those chosen here are held. */
  async choose(wanted: number, kept: number | undefined, host: string): Promise<number> {
    if (wanted !== 0) return wanted;
    const held = (kept === undefined ? null : await listen(kept, host)) ?? (await listenAnywhere(host));
    this.#held.set(held.port, held);
    return held.port;
  }

  /**
   * Lets go of it for the component that starts now.
   * @throws TrialgateError naming the port, who needs it and how to choose another, where something else listens on it.
   */
  async handOver(port: number, host: string, who: string, key: SettingKey): Promise<void> {
    const held = this.#held.get(port);
    this.#held.delete(port);
    await held?.close();
    await requireFree(port, host, who, key);
  }

  /** Lets go of all. */
  async close(): Promise<void> {
    await Promise.all([...this.#held.values()].map((held) => held.close()));
    this.#held.clear();
  }
}

/** @throws TrialgateError naming the port, who needs it and how to choose another. */
export async function requireFree(port: number, host: string, who: string, key: SettingKey): Promise<void> {
  const free = await listen(port, host);
  if (free) return free.close();
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken or may not be used. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
