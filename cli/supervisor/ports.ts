import { TrialgateError } from '../../core/errors.ts';
import { holdFreePort, holdPort, type HeldPort } from '../../core/free-port.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';

/** Holds ports for components that start later, by listening on them, so that nothing else takes them. */
export class HeldPorts {
  readonly #held = new Map<number, HeldPort>();

  /** Returns the port to use: `wanted`, or for 0 the `kept` one if it is free, else a free one, which is then held. */
  async choose(wanted: number, kept: number | undefined, host: string): Promise<number> {
    if (wanted !== 0) return wanted;
    const held = (kept === undefined ? null : await holdPort(kept, host)) ?? (await holdFreePort(host));
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
  const free = await holdPort(port, host);
  if (free) return free.close();
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken or may not be used. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
