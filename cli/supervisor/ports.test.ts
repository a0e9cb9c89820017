import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { expect, it } from 'vitest';
import { LOOPBACK } from './gateways.ts';
import { HeldPorts } from './ports.ts';
import { freePort } from '../../core/free-port.ts';

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

it('the supervisor chooses ports that the kernel gives to no outgoing connection, so that a component gets its port again after a restart', async () => {
  const [low = 0, high = 0] = readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/).map(Number);
  const ports = await Promise.all(Array.from({ length: 50 }, () => freePort(LOOPBACK)));
  // If the kernel may use nearly all ports for outgoing connections, there is no such port.
  if (low > 3_000) expect(ports.filter((port) => port >= low && port <= high)).toEqual([]);
});
