import { isIP } from 'node:net';

/** What a sandboxed process may reach besides its own loopback. Only bubblewrap can hold anything back. */
export type Network =
  | { kind: 'none' }
  /** Only the gateway at `url`. `folder` is a folder of the host's, out of the sandbox's sight, for the socket that leads there. */
  | { kind: 'gateway'; url: string; folder: string }
  /** All that the host reaches. */
  | { kind: 'host' };

export const NETWORKS = ['gateway', 'host'] as const;

const HTTP_PORTS: Record<string, number> = { 'http:': 80, 'https:': 443 };
/** Stands for a port that only root may listen on. */
const UNPRIVILEGED_PORT = 8700;

/** Where the gateway is, from the host and from inside a sandbox that has a network of its own. */
export type GatewayDoor = {
  host: string;
  port: number;
  /** The gateway's URL for a process in the sandbox. */
  insideUrl: string;
  insidePort: number;
  /** A host name that must lead to the sandbox's own loopback, so that TLS and virtual hosts see the name they expect. */
  name: string | null;
};

export function gatewayDoor(url: string): GatewayDoor {
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
