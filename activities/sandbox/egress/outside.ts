import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { connect, isIP, type Socket } from 'node:net';
import { isAddress } from '../../../core/host-rules.ts';
import { isPublic, mayBeListed } from './public-address.ts';
import { Refusal } from './refusal.ts';

/** The way to other hosts: the addresses of a name, and a connection to one address. */
export type Outside = {
  resolve: (name: string) => Promise<string[]>;
  connect: (address: string, port: number) => Socket;
  /** Ends what is being resolved. */
  close: () => void;
};

const RESOLVE_MS = 3000;
const CONNECT_MS = 10_000;
/** The most addresses of a name that are tried. */
const MAX_ADDRESSES = 4;

/** The machine's own name servers and network. */
export function openOutside(): Outside {
  const resolver = new Resolver({ timeout: RESOLVE_MS, tries: 2 });
  return {
    resolve: async (name) => {
      const found = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
      return found.flatMap((each) => (each.status === 'fulfilled' ? each.value : []));
    },
    connect: (address, port) => connect({ host: address, port, noDelay: true, allowHalfOpen: true }),
    close: () => resolver.cancel(),
  };
}

/**
 * Connects to a host that a rule allows. The connection goes to the very address that was checked, so a name that leads elsewhere the next
 * time changes nothing.
 * @throws Refusal
 */
export async function connectTo(
  { host, port }: { host: string; port: number },
  outside: Outside,
  signal: AbortSignal,
): Promise<Socket> {
  const addresses = isAddress(host) ? listedAddress(host) : await publicAddresses(host, outside);
  let reason = '';
  for (const address of addresses) {
    signal.throwIfAborted();
    const socket = outside.connect(address, port);
    socket.on('error', () => {});
    try {
      await once(socket, 'connect', { signal: AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]) });
      return socket;
    } catch (error) {
      socket.destroy();
      reason = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    }
  }
  throw new Refusal('failed', `it could not be reached (${reason})`);
}

function listedAddress(host: string): string[] {
  const address = host.replace(/^\[|\]$/g, '');
  if (!mayBeListed(address)) throw new Refusal('forbidden', 'no list opens this address');
  return [address];
}

async function publicAddresses(name: string, outside: Outside): Promise<string[]> {
  const found = (await outside.resolve(name)).filter((address) => isIP(address) !== 0);
  if (found.length === 0) throw new Refusal('failed', 'the name servers have no address for it');
  const allowed = found.filter(isPublic);
  if (allowed.length === 0)
    throw new Refusal('forbidden', `it leads to ${found[0]}, which is no public address of another machine`);
  return allowed.slice(0, MAX_ADDRESSES);
}
