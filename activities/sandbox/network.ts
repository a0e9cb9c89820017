import { isIP } from 'node:net';
import type { NETWORKS } from '../../core/networks.ts';
import type { Isolation } from './isolation.ts';

/** The network that a sandboxed process can reach besides its own loopback. Only bubblewrap can restrict it. */
export type Network =
  | { kind: 'none' }
  /** The process reaches only the gateway at `url`. `folder` is on the host, invisible to the sandbox, and has the socket that leads to the gateway. */
  | { kind: 'gateway'; url: string; folder: string }
  /** The process reaches all that the host reaches. */
  | { kind: 'host' };

/** Returns the network that an agent has in this form of isolation. Only bubblewrap keeps it to the gateway. */
export const reachedNetwork = (
  { kind }: Pick<Isolation, 'kind'>,
  network: (typeof NETWORKS)[number],
): (typeof NETWORKS)[number] => (kind === 'bubblewrap' ? network : 'host');

const HTTP_PORTS: Record<string, number> = { 'http:': 80, 'https:': 443 };
/** This port replaces a port on which only root may listen. */
const UNPRIVILEGED_PORT = 8700;

/** The gateway's address, from the host and from inside a sandbox that has its own network. */
export type GatewayAddress = {
  host: string;
  port: number;
  /** The gateway's URL for a process in the sandbox. */
  insideUrl: string;
  insidePort: number;
  /** A host name that must lead to the sandbox's own loopback, so that TLS and virtual hosts see the expected name. */
  name: string | null;
};

export function gatewayAddress(url: string): GatewayAddress {
  const gateway = new URL(url);
  const host = gateway.hostname.replace(/^\[|\]$/g, '');
  const port = Number(gateway.port) || (HTTP_PORTS[gateway.protocol] ?? 80);
  const insidePort = port < 1024 ? UNPRIVILEGED_PORT : port;
  const name = isIP(host) || host === 'localhost' ? null : host;
  const inside = new URL(url);
  inside.hostname = name ?? '127.0.0.1';
  inside.port = String(insidePort);
  return { host, port, insideUrl: inside.href.replace(/\/$/, ''), insidePort, name };
}
