import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { connectionsOf } from '../config/connections.ts';
import { resolveConfig } from '../config/resolve.ts';
import { gatewayPorts } from './gateways.ts';
import { identify } from './processes.ts';
import { writeState } from './state.ts';

it('a deployment’s gateways get consecutive ports, and a port past 65535 is refused with the setting’s name', () => {
  expect(gatewayPorts({ gateway_port: 8700, gateways: 3 })).toEqual([
    { name: 'gateway', wanted: 8700 },
    { name: 'gateway-2', wanted: 8701 },
    { name: 'gateway-3', wanted: 8702 },
  ]);
  expect(gatewayPorts({ gateway_port: 0, gateways: 2 }).map(({ wanted }) => wanted)).toEqual([0, 0]);
  expect(() => gatewayPorts({ gateway_port: 65_535, gateways: 2 })).toThrow(/past port 65535.*gateway_port/);
});

it('a worker gets the addresses of the deployment’s gateways, or the configured `gateway_url`', () => {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-gateways-'));
  const urlsOf = (flags: Record<string, string>) =>
    connectionsOf(resolveConfig({ cwd: home, env: {}, flags: { home, ...flags } }).config).gatewayUrls;
  try {
    expect(urlsOf({ gateways: '2' })).toEqual(['http://127.0.0.1:8700', 'http://127.0.0.1:8701']);
    expect(() => urlsOf({ gateway_port: '0' })).toThrow('nothing was started');
    const nothing = {
      supervisor: identify(process.pid),
      status: 'ready',
      failure: null,
      engines: [],
      settings: null,
      ranks: null,
      notes: [],
      components: [],
    } as const;
    writeState(home, {
      ...nothing,
      engines: [],
      notes: [],
      components: [],
      ports: { postgres: 1, temporal: 2, gateway: 9001, 'gateway-2': 9007 },
    });
    for (const gateways of ['1', '2', '4'])
      expect(urlsOf({ gateways, gateway_port: '0' })).toEqual(['http://127.0.0.1:9001', 'http://127.0.0.1:9007']);
    expect(urlsOf({ gateway_host: '10.0.0.5' })[0]).toBe('http://10.0.0.5:9001');
    expect(urlsOf({ gateway_host: '::' })[0]).toBe('http://127.0.0.1:9001');
    expect(urlsOf({ gateway_url: 'http://gateways.example' })).toEqual(['http://gateways.example']);
  } finally {
    rmSync(home, { recursive: true });
  }
});
