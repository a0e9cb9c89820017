import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { resolveConfig } from '../../cli/config/resolve.ts';
import { until } from '../support/harness/until.ts';
import type { ComponentName } from '../../cli/supervisor/components/all.ts';
import { folderElsewhere } from '../../cli/supervisor/components/postgres-home.ts';
import { down } from '../../cli/supervisor/down.ts';
import { groupOf, isAlive } from '../../cli/supervisor/processes.ts';
import { startStack, type Stack } from '../../cli/supervisor/stack.ts';
import { readState, type ComponentState, type StackState } from '../../cli/supervisor/state.ts';

const ANY_PORTS = { gateway_port: '0', temporal_port: '0', postgres_port: '0' };
const never = new AbortController().signal;
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'stack-'));
});
afterAll(() => {
  const elsewhere = readdirSync(folder).map((home) => folderElsewhere(path.join(folder, home)));
  for (const each of [folder, ...elsewhere]) rmSync(each, { recursive: true, force: true });
});

const configIn = (home: string, flags = {}) =>
  resolveConfig({ cwd: folder, env: {}, flags: { home, ...ANY_PORTS, ...flags } }).config;

function start(home: string, only: ComponentName[], flags = {}): Promise<Stack> {
  return startStack({ config: configIn(path.join(folder, home), flags), only }, never);
}

const processesNaming = (file: string): number[] =>
  readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && commandLine(pid).includes(file));

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** Returns the extra ports that Temporal reports and that answer on this machine's network. Where bubblewrap works there are none. */
async function ownPortsOfTemporal({ plan }: Stack): Promise<string[]> {
  const log = readFileSync(path.join(plan.folders.logs, 'temporal.log'), 'utf8');
  const ports = [...log.matchAll(/localhost:(\d+)/g)].flatMap(([, port]) => port ?? []);
  expect(ports.length).toBeGreaterThan(0);
  if ((await isolation()).kind !== 'bubblewrap') return [];
  const answers = await Promise.all(
    ports.map((port) =>
      fetch(`http://127.0.0.1:${port}`).then(
        () => true,
        () => false,
      ),
    ),
  );
  return ports.filter((_, index) => answers[index]);
}

const componentOf = (state: StackState | null, name: string): ComponentState | undefined =>
  state?.components.find((each) => each.name === name);

async function query(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  return rows;
}

it('a killed component is started again at its address, with its data', async () => {
  const stack = await start('killed', ['postgres', 'temporal']);
  const { databaseUrl } = stack.plan;
  const temporals = () => processesNaming(stack.plan.folders.temporalDb);
  const leaders = stack.state().components.flatMap((each) => each.process ?? []);
  try {
    await query(databaseUrl, 'create table kept as select 7 as n');
    for (const name of ['postgres', 'temporal']) {
      const before = componentOf(stack.state(), name);
      process.kill(before?.process?.pid ?? 0, 'SIGKILL');
      await until(() => {
        const now = componentOf(stack.state(), name);
        return now?.status === 'ready' && now.process?.pid !== before?.process?.pid;
      });
      expect(componentOf(stack.state(), name)).toMatchObject({ restarts: 1, address: before?.address });
    }
    expect(temporals().length).toBeGreaterThan(0);
    expect(await ownPortsOfTemporal(stack)).toEqual([]);
    expect(await query(databaseUrl, 'select n from kept')).toEqual([{ n: 7 }]);
    leaders.push(...stack.state().components.flatMap((each) => each.process ?? []));
  } finally {
    await stack.stop();
  }
  expect(leaders.flatMap((leader) => groupOf(leader))).toEqual([]);
  expect(temporals()).toEqual([]);
});

it('a PostgreSQL whose data is of an earlier deployment in the same folder is started once, and `up` says what to do', async () => {
  const first = await start('cloned-again', ['postgres']);
  await first.stop();
  rmSync(path.join(folder, 'cloned-again', 'secrets.json'));
  const again = start('cloned-again', ['postgres']);
  await expect(again).rejects.toThrow('it is of an earlier deployment in the same folder');
  await expect(again).rejects.toThrow(/rm -r .*` if you need none of its runs/);
});

it('after a supervisor was killed, the next one ends the processes that were left before it starts its own', async () => {
  const home = path.join(folder, 'orphaned');
  const supervisor = supervise(home);
  await until(() => readState(home)?.status === 'ready');
  const left = readState(home)?.components.flatMap((each) => each.process ?? []) ?? [];
  supervisor.kill('SIGKILL');
  await until(() => supervisor.signalCode !== null);
  expect(left.every(isAlive)).toBe(true);
  const ports = readState(home)?.ports;

  const stack = await start('orphaned', ['postgres']);
  expect(left.some(isAlive)).toBe(false);
  expect(stack.state().ports.postgres).toBe(ports?.postgres);
  await stack.stop();
});

it('after a supervisor was killed, `down` ends the processes that were left', async () => {
  const home = path.join(folder, 'orphaned');
  const supervisor = supervise(home);
  await until(() => readState(home)?.status === 'ready' && readState(home)?.supervisor.pid === supervisor.pid);
  const left = readState(home)?.components.flatMap((each) => each.process ?? []) ?? [];
  supervisor.kill('SIGKILL');
  await until(() => supervisor.signalCode !== null);
  expect(await down(home)).toEqual(['postgres']);
  expect(left.some(isAlive)).toBe(false);
});

function supervise(home: string): ChildProcess {
  const script = `
    const { resolveConfig } = await import('${import.meta.dirname}/../../cli/config/resolve.ts');
    const { startStack } = await import('${import.meta.dirname}/../../cli/supervisor/stack.ts');
    const flags = ${JSON.stringify({ home, ...ANY_PORTS })};
    const { config } = resolveConfig({ env: {}, flags });
    await startStack({ config, only: ['postgres'] }, new AbortController().signal);
    setInterval(() => {}, 1000);`;
  return spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' });
}

it.each([
  [
    'an argument that vLLM does not have',
    { engine_args: '--no-such-argument' },
    'unrecognized arguments: --no-such-argument',
  ],
  [
    'a context longer than the model’s',
    { max_model_len: '100000' },
    'User-specified max_model_len (100000) is greater than',
  ],
])('an engine with %s is started once, and `up` fails with vLLM’s own sentence', async (title, flags, sentence) => {
  const home = title.replaceAll(/[^a-z]/g, '-');
  await expect(start(home, ['vllm'], flags)).rejects.toThrow(`vllm cannot start: ${sentence}`);
  expect(componentOf(readState(path.join(folder, home)), 'vllm')).toMatchObject({ status: 'stopped', restarts: 1 });
});

it('the supervisor starts all gateways on ports that the workers know, and restarts a gateway that dies at its old port', async () => {
  const stack = await start('gateways', ['postgres', 'gateway'], { gateways: '3', engines: 'http://127.0.0.1:9' });
  const config = configIn(path.join(folder, 'gateways'), { gateways: '3' });
  const answering = async () =>
    Promise.all(connectionsOf(config).gatewayUrls.map(async (url) => (await fetch(`${url}/health`)).status));
  try {
    expect(stack.plan.gatewayUrls).toEqual(connectionsOf(config).gatewayUrls);
    expect(new Set(stack.plan.gatewayUrls).size).toBe(3);
    expect(await answering()).toEqual([200, 200, 200]);
    const before = componentOf(stack.state(), 'gateway-2');
    process.kill(before?.process?.pid ?? 0, 'SIGKILL');
    await until(
      () =>
        componentOf(stack.state(), 'gateway-2')?.restarts === 1 &&
        componentOf(stack.state(), 'gateway-2')?.status === 'ready',
    );
    expect(componentOf(stack.state(), 'gateway-2')?.address).toBe(before?.address);
    expect(stack.state().components.map(({ name, restarts }) => `${name} ${restarts}`)).toEqual([
      'postgres 0',
      'gateway 0',
      'gateway-2 1',
      'gateway-3 0',
    ]);
    expect(await answering()).toEqual([200, 200, 200]);
  } finally {
    await stack.stop();
  }
});

it('a second supervisor of a deployment is refused while the first runs', async () => {
  const stack = await start('locked', []);
  await expect(start('locked', [])).rejects.toThrow(/already up/);
  await stack.stop();
  await (await start('locked', [])).stop();
});

it('a start that finds a port taken ends, and its message names the port and the setting that chooses another', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await until(() => server.listening);
  const address = server.address();
  const port = typeof address === 'object' ? String(address?.port) : '';
  try {
    const starting = start('taken', ['postgres', 'temporal'], { temporal_port: port });
    await expect(starting).rejects.toThrow(new RegExp(`${port}.*Temporal.*--temporal-port.*TRIALGATE_TEMPORAL_PORT`));
    const state = readState(path.join(folder, 'taken'));
    expect(state?.status).toBe('failed');
    expect(state?.components.flatMap((each) => each.process ?? [])).toEqual([]);
  } finally {
    server.close();
  }
});

it.runIf(process.getuid?.() === 0)(
  'under root the deployment’s folder is closed to others, and PostgreSQL runs as a user that reaches its data',
  async () => {
    const stack = await start('closed', ['postgres']);
    const data = /data in (\S+?)(,|$)/.exec(stack.state().notes.join())?.[1] ?? '';
    try {
      expect(statSync(path.join(folder, 'closed')).mode & 0o777).toBe(0o700);
      expect(statSync(data).uid).toBe(65534);
      expect(await query(stack.plan.databaseUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
    } finally {
      await stack.stop();
    }
  },
);
