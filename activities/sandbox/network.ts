import { isIP } from 'node:net';
import type { AgentNetwork } from '../../core/networks.ts';
import type { SandboxBackend } from './backend.ts';

/** The network that a sandboxed process can reach besides its own loopback. */
export type Network =
  | { kind: 'none' }
  /** The process reaches only the gateway at `url`. `folder` is on the host, invisible to the sandbox, and has the socket that leads to the gateway. */
  | {
      kind: 'gateway';
      url: string;
      folder: string;
      /** The hosts that it reaches too, through the egress proxy. */
      hosts?: readonly string[];
    }
  /** The process reaches only these hosts, through the egress proxy. */
  | { kind: 'hosts'; hosts: readonly string[]; folder: string }
  /** The process reaches all that the host reaches. */
  | { kind: 'host' };

/** Returns the network that an agent has in this kind of sandbox, which is the host's where the kind can restrict nothing. */
export const reachedNetwork = (
  { capabilities }: Pick<SandboxBackend, 'capabilities'>,
  network: AgentNetwork,
): AgentNetwork => (capabilities.networks.includes('gateway') ? network : 'host');

const HTTP_PORTS: Record<string, number> = { 'http:': 80, 'https:': 443 };
/** This port replaces a port on which only root may listen. */
const UNPRIVILEGED_PORT = 8700;

/** The port of the sandbox's loopback that leads to the egress proxy. */
const EGRESS_PORT = 8701;

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

/** A port that leads out of a sandbox: the name of the socket that it leads to, and its number. */
export type Door = { socket: string; port: number };

export const GATEWAY_SOCKET = 'gateway.sock';
export const EGRESS_SOCKET = 'egress.sock';

/** Returns the ports that lead out of a sandbox with this network, the gateway's first. */
export function doorsOf(network: Network): Door[] {
  const port = network.kind === 'gateway' ? gatewayAddress(network.url).insidePort : null;
  const hasProxy = network.kind === 'hosts' || (network.kind === 'gateway' && network.hosts !== undefined);
  return [
    ...(port === null ? [] : [{ socket: GATEWAY_SOCKET, port }]),
    ...(hasProxy ? [{ socket: EGRESS_SOCKET, port: port === EGRESS_PORT ? EGRESS_PORT + 1 : EGRESS_PORT }] : []),
  ];
}

/** Returns the variables by which programs find the egress proxy; none where there is none. */
export function proxyVariables(network: Network): Record<string, string> {
  const egress = doorsOf(network).find(({ socket }) => socket === EGRESS_SOCKET);
  if (!egress) return {};
  const proxy = `http://127.0.0.1:${egress.port}`;
  const name = network.kind === 'gateway' ? gatewayAddress(network.url).name : null;
  const direct = ['127.0.0.1', 'localhost', '::1', ...(name === null ? [] : [name])].join(',');
  const variables = { HTTP_PROXY: proxy, HTTPS_PROXY: proxy, ALL_PROXY: proxy, NO_PROXY: direct };
  return {
    ...variables,
    ...Object.fromEntries(Object.entries(variables).map(([key, value]) => [key.toLowerCase(), value])),
    // Node's own clients use a proxy only when this says so.
    NODE_USE_ENV_PROXY: '1',
  };
}
