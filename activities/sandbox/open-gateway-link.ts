import { setImmediate as turnOfTheEventLoop } from 'node:timers/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Mount } from './bubblewrap.ts';
import type { EgressRow } from './egress/egress-log.ts';
import { openEgressProxy } from './egress/egress-proxy.ts';
import type { Outside } from './egress/outside.ts';
import { hostWork } from './errors.ts';
import { openForwarder } from './forwarder.ts';
import { NO_GATEWAY_FAILURES, type GatewayFailures } from './gateway-watch.ts';
import { doorsOf, gatewayAddress, type Network } from './network.ts';

const RELAY = fileURLToPath(new URL('./relay.py', import.meta.url));
const INSIDE = '/run/trialgate';

/** What the host has seen of a sandbox's connections. */
export type LinkReport = GatewayFailures & { egress: EgressRow[] };
export const EMPTY_REPORT: LinkReport = { ...NO_GATEWAY_FAILURES, egress: [] };

/** A sandbox's connection to the gateway and to the hosts of its list. A sandbox that shares the host's network needs none. */
export type GatewayLink = AsyncDisposable & {
  mounts: Mount[];
  /** The prefix of the command. It opens the relay's ports and then becomes the command. */
  relay: string[];
  /** The number of the relay's processes. */
  relayProcesses: number;
  /** Returns true when the relay has started, or where no relay is needed. */
  relayStarted: () => Promise<boolean>;
  /** Closes the connection and returns what the host has seen. */
  close: () => Promise<LinkReport>;
};

/** `python` runs the relay; null: the process shares the host's network, so it needs none. */
export async function openGatewayLink(
  { python, network }: { python: string | null; network: Network },
  outside?: Outside,
): Promise<GatewayLink> {
  if (python === null || network.kind === 'none' || network.kind === 'host') {
    return {
      mounts: [],
      relay: [],
      relayProcesses: 0,
      relayStarted: async () => true,
      close: async () => EMPTY_REPORT,
      [Symbol.asyncDispose]: async () => {},
    };
  }
  const { hosts, folder } = network;
  await using opened = new AsyncDisposableStack();
  const forwarder =
    network.kind === 'gateway'
      ? await hostWork('opening the way to the gateway', () => openForwarder(gatewayAddress(network.url), folder))
      : null;
  if (forwarder) opened.defer(async () => void (await forwarder.close()));
  const egress =
    hosts === undefined
      ? null
      : await hostWork('opening the egress proxy', () => openEgressProxy({ hosts, folder, outside }));
  opened.move();
  let closed: Promise<LinkReport> | null = null;
  const closeBoth = async (): Promise<LinkReport> => {
    const [failures, asked] = await Promise.all([forwarder?.close(), egress?.close()]);
    return { ...EMPTY_REPORT, ...failures, ...(asked && { egress: asked }) };
  };
  const close = (): Promise<LinkReport> => (closed ??= closeBoth());
  const readOnly = (host: string, inside: string): Mount => ({ host, inside, writable: false });
  const ways = [forwarder, egress].filter((way) => way !== null);
  const doors = doorsOf(network);
  const haveStarted = (): boolean => ways.every((way) => way.relayStarted());
  return {
    mounts: [
      readOnly(RELAY, `${INSIDE}/relay.py`),
      ...ways.map(({ socket }) => readOnly(socket, `${INSIDE}/${basename(socket)}`)),
      ...(forwarder?.hosts ? [readOnly(forwarder.hosts, '/etc/hosts')] : []),
    ],
    relay: [
      ...[python, '-I', '-S', '-B', `${INSIDE}/relay.py`],
      ...doors.flatMap(({ socket, port }) => [`${INSIDE}/${socket}`, String(port)]),
      '--',
    ],
    relayProcesses: doors.length,
    relayStarted: async () => {
      // The relay's first connection may still wait for this process after the command has ended.
      if (!haveStarted()) await turnOfTheEventLoop();
      return haveStarted();
    },
    close,
    [Symbol.asyncDispose]: async () => void (await close()),
  };
}
