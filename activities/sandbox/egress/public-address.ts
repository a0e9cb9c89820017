import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** The IPv4 networks that are not public, from IANA's registry of special addresses. */
const SPECIAL_IPV4: readonly (readonly [address: string, prefix: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
];
/** The network of all public IPv6 addresses. */
const GLOBAL_IPV6 = ['2000::', 3] as const;
/** The networks in it that are not public: for protocols, for documentation, and for tunnels, whose addresses have an IPv4 address in them. */
const SPECIAL_IPV6: typeof SPECIAL_IPV4 = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
];

const special = new BlockList();
for (const [address, prefix] of SPECIAL_IPV4) special.addSubnet(address, prefix, 'ipv4');
for (const [address, prefix] of SPECIAL_IPV6) special.addSubnet(address, prefix, 'ipv6');
const globalIpv6 = new BlockList();
globalIpv6.addSubnet(...GLOBAL_IPV6, 'ipv6');

/** Loopback, addresses that stand for it, and multicast. */
const neverIpv4 = new BlockList();
neverIpv4.addSubnet('0.0.0.0', 8, 'ipv4');
neverIpv4.addSubnet('127.0.0.0', 8, 'ipv4');
neverIpv4.addSubnet('224.0.0.0', 3, 'ipv4');
// A block list takes an IPv4 address for its mapped one, so these are apart.
const neverIpv6 = new BlockList();
neverIpv6.addSubnet('::', 96, 'ipv6');
neverIpv6.addSubnet('::ffff:0:0', 96, 'ipv6');
neverIpv6.addSubnet('ff00::', 8, 'ipv6');

/** True for an address of the internet that is not this machine's own. */
export function isPublic(address: string): boolean {
  const family = isIP(address);
  if (family === 0 || isOwn(address)) return false;
  if (family === 4) return !special.check(address, 'ipv4');
  return globalIpv6.check(address, 'ipv6') && !special.check(address, 'ipv6');
}

/** True for an address that a list may open if the list has the address itself. */
export function mayBeListed(address: string): boolean {
  const family = isIP(address);
  if (family === 4) return !neverIpv4.check(address, 'ipv4');
  return family === 6 && !neverIpv6.check(address, 'ipv6');
}

const isOwn = (address: string): boolean =>
  Object.values(networkInterfaces()).some((addresses) => addresses?.some((each) => each.address === address));
