import { execFileSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { isolation } from '../isolation.ts';
import { isPublic, mayBeListed } from './public-address.ts';

const EDGES = [
  ...[
    '0.0.0.0',
    '0.255.255.255',
    '1.1.1.1',
    '9.255.255.255',
    '10.0.0.0',
    '10.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
  ],
  ...['100.64.0.0', '100.127.255.255', '100.128.0.0', '126.255.255.255', '127.0.0.1', '127.255.255.255', '128.0.0.1'],
  ...[
    '169.253.255.255',
    '169.254.0.0',
    '169.254.169.254',
    '169.255.0.0',
    '172.15.255.255',
    '172.16.0.0',
    '172.31.255.255',
  ],
  ...['172.32.0.0', '192.0.0.1', '192.0.2.1', '192.167.255.255', '192.168.0.0', '192.168.255.255', '192.169.0.0'],
  ...['198.17.255.255', '198.18.0.0', '198.19.255.255', '198.20.0.0', '198.51.100.1', '203.0.113.255', '203.0.114.0'],
  ...['223.255.255.255', '240.0.0.0', '255.255.255.255', '8.8.8.8'],
  ...['::', '::1', '::ffff:127.0.0.1', '::ffff:10.0.0.1', '100::1', '2001::1', '2001:db8::1'],
  ...['2606:4700:4700::1111', '3fff::1', 'fc00::1', 'fdff::1', 'fe80::1', 'febf::1', '2a00::1'],
];
/** We refuse more than Python calls not global: tunnels that have an IPv4 address in them, multicast, and mapped addresses. */
const STRICTER = [
  '::7f00:1',
  '64:ff9b:1::1',
  '2002:7f00:1::1',
  '64:ff9b::7f00:1',
  '64:ff9b::808:808',
  '224.0.0.1',
  '239.1.1.1',
  'ff02::1',
  '::ffff:8.8.8.8',
];

test('the addresses that may be reached by a name are those that Python’s registry of special addresses calls global', async () => {
  const code =
    'import ipaddress, json, sys; print(json.dumps([ipaddress.ip_address(a).is_global for a in sys.argv[1:]]))';
  const { python } = await isolation();
  const globals: unknown = JSON.parse(execFileSync(python.executable, ['-c', code, ...EDGES], { encoding: 'utf8' }));
  // Older versions of Python do not know this network yet.
  const known = (values: unknown): unknown[] =>
    Array.isArray(values) ? values.filter((_, i) => EDGES[i] !== '3fff::1') : [];
  expect(known(EDGES.map(isPublic))).toEqual(known(globals));
  expect([...STRICTER, '3fff::1', 'no address', ''].filter(isPublic)).toEqual([]);
});

test('no address of this machine may be reached by a name', () => {
  const own = Object.values(networkInterfaces()).flatMap((each) => each?.map(({ address }) => address) ?? []);
  expect(own.filter(isPublic)).toEqual([]);
});

test('a list may have private addresses, and neither loopback nor multicast', () => {
  expect(['10.0.0.7', '169.254.169.254', 'fd00::7'].map(mayBeListed)).toEqual([true, true, true]);
  const never = ['127.0.0.1', '127.9.9.9', '0.0.0.0', '::1', '::', '::ffff:127.0.0.1', '::ffff:10.0.0.7', '224.0.0.1'];
  expect([...never, '255.255.255.255', 'ff02::1', 'name'].filter(mayBeListed)).toEqual([]);
});
