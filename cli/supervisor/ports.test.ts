import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { connectionsOf } from '../config/connections.ts';
import { resolveConfig } from '../config/resolve.ts';
import { LOOPBACK } from './gateways.ts';
import { HeldPorts, ownPorts } from './ports.ts';
import { startStack } from './stack.ts';
import { freePort, holdFreePort } from '../../core/free-port.ts';

const take = (port: number): Promise<string> =>
  new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve(String(error)));
    server.listen(port, LOOPBACK, () => server.close(() => resolve('taken')));
  });

it('the supervisor holds the port that it chose for a component until the component starts', async () => {
  const held = new HeldPorts();
  const port = await held.choose(0, undefined, LOOPBACK);
  expect(await take(port)).toMatch('EADDRINUSE');
  expect(await new HeldPorts().choose(0, port, LOOPBACK)).not.toBe(port);
  await held.handOver(port, LOOPBACK, 'the gateway', 'gateway_port');
  expect(await take(port)).toBe('taken');
});

it('a gateway gets its held port even when an agent has connected to it meanwhile', async () => {
  const held = new HeldPorts();
  const port = await held.choose(0, undefined, LOOPBACK);
  const agent = connect(port, LOOPBACK).on('error', () => {});
  await once(agent, 'connect');
  await held.handOver(port, LOOPBACK, 'the gateway', 'gateway_port');
  expect(await take(port)).toBe('taken');
  agent.destroy();
});

it('the supervisor frees the ports that it held for components that did not start', async () => {
  const held = new HeldPorts();
  const port = await held.choose(0, undefined, LOOPBACK);
  await held.close();
  expect(await take(port)).toBe('taken');
});

it('a default port that is taken gives way to the port of the last start, else to a free one, and a chosen port does not', async () => {
  const other = await holdFreePort(LOOPBACK);
  const kept = await freePort(LOOPBACK);
  const held = new HeldPorts();
  try {
    expect(await held.choose(kept, undefined, LOOPBACK, true)).toBe(kept);
    await held.close();
    expect(await held.choose(other.port, kept, LOOPBACK, true)).toBe(kept);
    const free = await held.choose(other.port, kept, LOOPBACK, true);
    expect([other.port, kept]).not.toContain(free);
    expect(await take(free)).toMatch('EADDRINUSE');
    expect(await held.choose(other.port, kept, LOOPBACK)).toBe(other.port);
    await expect(held.handOver(other.port, LOOPBACK, 'the gateway', 'gateway_port')).rejects.toThrow(
      `port ${other.port} on ${LOOPBACK}, which the gateway needs, is taken by node (process ${process.pid}). Stop`,
    );
  } finally {
    await Promise.all([held.close(), other.close()]);
  }
});

it('a deployment whose default port is taken starts on a free one and says so; a port that was chosen stays', async () => {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-ports-'));
  const others = await Promise.all([holdFreePort(LOOPBACK), holdFreePort(LOOPBACK)]);
  const [gateway_port = '', temporal_port = ''] = others.map(({ port }) => String(port));
  const { config, origins } = resolveConfig({
    cwd: home,
    env: {},
    flags: { home, gateway_port, temporal_port, postgres_port: '0' },
  });
  try {
    const stack = await startStack(
      {
        config,
        origins: { ...origins, gateway_port: 'default' },
        components: () => ({ components: [], notes: ['a note of a component'] }),
      },
      new AbortController().signal,
    );
    await stack.stop();
    const { ports, notes } = stack.state();
    expect(ports['gateway']).not.toBe(Number(gateway_port));
    expect(ports['temporal']).toBe(Number(temporal_port));
    expect(notes).toEqual([
      `port ${gateway_port} is taken, so the gateway listens on ${ports['gateway']}`,
      'a note of a component',
    ]);
    expect(connectionsOf(config).gatewayUrl).toBe(`http://${LOOPBACK}:${ports['gateway']}`);
  } finally {
    await Promise.all(others.map((other) => other.close()));
    rmSync(home, { recursive: true });
  }
});

it('the supervisor chooses ports that the kernel gives to no outgoing connection, so that a component gets its port again after a restart', async () => {
  const [low = 0, high = 0] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/).map(Number);
  const ports = await Promise.all(Array.from({ length: 50 }, () => freePort(LOOPBACK)));
  // If the kernel may use nearly all ports for outgoing connections, there is no such port.
  if (low > 3_000) expect(ports.filter((port) => port >= low && port <= high)).toEqual([]);
});

it('a gateway’s default port stays where others have its number, by `gateway_url` or on other machines', () => {
  const gateway = (settings: Record<string, string>) => {
    const { config, origins } = resolveConfig({ env: { TRIALGATE_HOME: '/nowhere', ...settings }, cwd: '/' });
    return ownPorts(config, origins).find(({ key }) => key === 'gateway_port')?.isDefault;
  };
  expect(gateway({})).toBe(true);
  expect(gateway({ TRIALGATE_GATEWAY_URL: 'http://127.0.0.1:8700' })).toBe(false);
  expect(gateway({ TRIALGATE_GATEWAY_HOST: '0.0.0.0' })).toBe(false);
});
