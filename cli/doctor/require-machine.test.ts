import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { holdFreePort, type HeldPort } from '../../core/free-port.ts';
import { resolveConfig } from '../config/resolve.ts';
import { LOOPBACK } from '../supervisor/gateways.ts';
import { identify } from '../supervisor/processes.ts';
import { writeState } from '../supervisor/state.ts';
import { examine } from './examine.ts';
import { requireMachine } from './require-machine.ts';

const home = mkdtempSync(join(tmpdir(), 'trialgate-machine-'));
let held: HeldPort[] = [];
let taken: string[] = [];
beforeAll(async () => {
  held = await Promise.all(Array.from({ length: 3 }, () => holdFreePort(LOOPBACK)));
  taken = held.map(({ port }) => String(port));
});
afterAll(async () => {
  await Promise.all(held.map((each) => each.close()));
  rmSync(home, { recursive: true });
});

/** Returns the settings of a deployment for which three ports that are taken were chosen. */
function asked(origins: Record<string, string> = {}) {
  const [gateway_port = '', postgres_port = '', temporal_ui_port = ''] = taken;
  const flags = { home, gateway_port, postgres_port, temporal_ui_port, temporal_port: '0', unsandboxed: 'true' };
  const resolved = resolveConfig({ cwd: home, env: {}, flags });
  return { ...resolved, origins: { ...resolved.origins, ...origins } };
}

it('all that is missing for a start is said in one message, before anything is installed', async () => {
  const start = requireMachine(asked(), { installs: false });
  for (const port of taken) await expect(start).rejects.toThrow(`port ${port} on 127.0.0.1`);
  await expect(start).rejects.toMatchObject({ code: 'missing_prerequisite' });
  await expect(start).rejects.toThrow(/^3 things are missing/);
});

it('a taken port that nobody chose is not missing, because the component gets a free one', async () => {
  const origins = { gateway_port: 'default', postgres_port: 'default' };
  const ports = async (others: Record<string, string>) =>
    (await examine(asked(others), { only: ['ports'] })).map(({ result, finding }) => `${result}: ${finding}`);
  expect(await ports(origins)).toEqual([expect.stringMatching(`^missing: port ${taken[2]}`)]);
  const { config } = asked();
  const [found] = await examine({ config: { ...config, temporal_ui_port: undefined }, origins }, { only: ['ports'] });
  expect(found).toEqual({
    check: 'ports',
    result: 'ok',
    finding: `${taken[0]} is taken, the gateway gets a free one, ${taken[1]} is taken, PostgreSQL gets a free one`,
  });
});

it('ports that a deployment or its left processes use are not missing', async () => {
  const running = {
    supervisor: identify(process.pid),
    status: 'ready' as const,
    failure: null,
    ports: {},
    engines: [],
    settings: null,
    ranks: null,
    notes: [],
    components: [],
  };
  try {
    writeState(home, running);
    await expect(requireMachine(asked())).resolves.toBeUndefined();
    const left = {
      name: 'postgres',
      status: 'ready' as const,
      process: identify(process.pid),
      address: '',
      since: '',
      restarts: 0,
      detail: null,
      log: null,
      stopSignal: 'SIGINT',
    };
    writeState(home, { ...running, supervisor: { pid: process.pid, ticks: 0 }, components: [left] });
    await expect(requireMachine(asked(), { installs: false })).resolves.toBeUndefined();
  } finally {
    rmSync(join(home, 'state.json'));
  }
});
