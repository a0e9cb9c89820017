import { TrialgateError } from '../../core/errors.ts';
import { holdFreePort, holdPort, type HeldPort } from '../../core/free-port.ts';
import type { ResolvedConfig } from '../config/resolve.ts';
import { hostOf, portOf, type Deployment } from '../config/schema.ts';
import { flagOf, variableOf, type SettingKey } from '../config/settings.ts';
import { gatewayPorts, LOOPBACK } from './gateways.ts';
import { portOwner } from './socket-owner.ts';

/** A port on which a component of the deployment listens. `wanted` is 0 where any will do; so will any where it `isDefault`, if that one is taken. */
export type OwnPort = {
  name: string;
  who: string;
  key: SettingKey;
  wanted: number;
  host: string;
  isDefault: boolean;
};

/** Returns the ports of the components that the deployment starts itself. `origins` say which ports nobody chose. */
export function ownPorts(config: Deployment, origins: ResolvedConfig['origins'] = {}): OwnPort[] {
  const gateways = gatewayPorts(config).map(({ name, wanted }) => ({
    name,
    who: `the ${name}`,
    key: 'gateway_port' as const,
    wanted,
    host: config.gateway_host,
  }));
  const temporal = { name: 'temporal', who: 'Temporal', key: 'temporal_port', host: LOOPBACK } as const;
  const postgres = { name: 'postgres', who: 'PostgreSQL', key: 'postgres_port', host: LOOPBACK } as const;
  return [
    ...gateways,
    ...(config.temporal_address ? [] : [{ ...temporal, wanted: config.temporal_port }]),
    ...(config.database_url ? [] : [{ ...postgres, wanted: config.postgres_port }]),
  ].map((port) => ({ ...port, isDefault: origins[port.key] === 'default' && !isKnownElsewhere(config, port.key) }));
}

/** Returns the ports at which the workers of a deployment answer Prometheus. */
export function metricsPorts({ metrics_address: address }: Pick<Deployment, 'metrics_address'>): OwnPort[] {
  if (address === undefined) return [];
  const host = hostOf(address).replaceAll(/[[\]]/g, '');
  return ['the workflow worker', 'the activity worker', 'the GPU worker'].map((who, n) => ({
    name: 'metrics',
    who: `${who}'s metrics`,
    key: 'metrics_address',
    wanted: portOf(address) + n,
    host,
    isDefault: false,
  }));
}

/** True for a port that others have the number of: agents by `gateway_url`, or other machines. */
const isKnownElsewhere = ({ gateway_url: url, gateway_host: host }: Deployment, key: OwnPort['key']): boolean =>
  key === 'gateway_port' && (url !== undefined || host !== LOOPBACK);

/** Holds ports for components that start later, by listening on them, so that nothing else takes them. */
export class HeldPorts {
  readonly #held = new Map<number, HeldPort>();

  /**
   * Returns the port to use: `wanted`, if somebody chose it. Otherwise the first that is free of `wanted` and the `kept` one, else any free
   * one; it is then held.
   */
  async choose(wanted: number, kept: number | undefined, host: string, isDefault = false): Promise<number> {
    if (wanted !== 0 && !isDefault) return wanted;
    for (const port of [wanted, kept]) {
      const held = port ? await holdPort(port, host) : null;
      if (held) return this.#hold(held);
    }
    return this.#hold(await holdFreePort(host));
  }

  #hold(held: HeldPort): number {
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

/** @throws TrialgateError when the port is not free; the message has the port, who needs it, who has it and how to choose another. */
export async function requireFree(port: number, host: string, who: string, key: SettingKey): Promise<void> {
  const free = await holdPort(port, host);
  if (free) return free.close();
  const owner = portOwner(port, host);
  throw new TrialgateError(
    'missing_prerequisite',
    `port ${port} on ${host}, which ${who} needs, is taken${owner === null ? ' or may not be used' : ` by ${owner}`}. Stop what listens there, or choose another port: ` +
      `${flagOf(key)} N, \`${key}: N\` in trialgate.yaml or ${variableOf(key)}=N (0: any free one)`,
  );
}
