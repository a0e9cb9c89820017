import { setImmediate as turnOfTheEventLoop } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Mount } from './bubblewrap.ts';
import { hostWork } from './errors.ts';
import { openForwarder } from './forwarder.ts';
import { NO_GATEWAY_FAILURES, type GatewayFailures } from './gateway-watch.ts';
import type { Isolation } from './isolation.ts';
import { gatewayAddress, type Network } from './network.ts';

const RELAY = fileURLToPath(new URL('./relay.py', import.meta.url));
const INSIDE = { relay: '/run/trialgate/relay.py', socket: '/run/trialgate/gateway.sock' };

/** A sandbox's connection to the gateway. A sandbox that shares the host's network needs none, and a verifier has none. */
export type GatewayLink = AsyncDisposable & {
  mounts: Mount[];
  /** The prefix of the command. It opens the relay's port and then becomes the command. */
  relay: string[];
  /** Returns true when the relay has started, or where no relay is needed. */
  relayStarted: () => Promise<boolean>;
  /** Closes the connection and returns the failures of the gateway's side. */
  close: () => Promise<GatewayFailures>;
};

export async function openGatewayLink({
  isolation,
  network,
}: {
  isolation: Isolation;
  network: Network;
}): Promise<GatewayLink> {
  if (isolation.kind !== 'bubblewrap' || network.kind !== 'gateway') {
    return {
      mounts: [],
      relay: [],
      relayStarted: async () => true,
      close: async () => NO_GATEWAY_FAILURES,
      [Symbol.asyncDispose]: async () => {},
    };
  }
  const gateway = gatewayAddress(network.url);
  const forwarder = await hostWork('opening the way to the gateway', () => openForwarder(gateway, network.folder));
  let closed: Promise<GatewayFailures> | null = null;
  const close = (): Promise<GatewayFailures> => (closed ??= forwarder.close());
  const readOnly = (host: string, inside: string): Mount => ({ host, inside, writable: false });
  return {
    mounts: [
      readOnly(RELAY, INSIDE.relay),
      readOnly(forwarder.socket, INSIDE.socket),
      ...(forwarder.hosts ? [readOnly(forwarder.hosts, '/etc/hosts')] : []),
    ],
    relay: [isolation.python.executable, '-I', '-S', '-B', INSIDE.relay, INSIDE.socket, String(gateway.insidePort)],
    relayStarted: async () => {
      // The relay's first connection may still wait for this process after the command has ended.
      if (!forwarder.relayStarted()) await turnOfTheEventLoop();
      return forwarder.relayStarted();
    },
    close,
    [Symbol.asyncDispose]: async () => void (await close()),
  };
}
