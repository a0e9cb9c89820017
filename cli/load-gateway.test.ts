import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { logRecord } from '../core/log-record.ts';
import { KubernetesApiServer } from '../tests/support/fakes/kubernetes-api-server.ts';
import { writeCheckpoint } from '../tests/support/harness/checkpoints.ts';
import { GatewayProcess } from '../tests/support/harness/gateway-process.ts';
import { casesOf } from '../tests/support/harness/in-gate.ts';
import { TestPostgres } from '../tests/support/harness/postgres.ts';
import { until } from '../tests/support/harness/until.ts';
import { EXIT } from './exit.ts';
import { INSTALLS } from './folders.ts';
import { PAGE_INDEX } from './install/page.ts';
import { folderElsewhere } from './supervisor/components/postgres-home.ts';
import { isAlive } from './supervisor/processes.ts';
import { readState } from './supervisor/state.ts';
import { REPOSITORY } from '../core/repository.ts';

let postgres: TestPostgres;
beforeAll(async () => void (postgres = await TestPostgres.create()));
afterAll(() => postgres.close());
const rest = ['--secret', 'a secret of sixteen characters', '--engine', 'http://127.0.0.1:9'];

test('a gateway bundled into one file finds the files of its documentation page, the page on runs where it is built, and the checkpoints of its home', async () => {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-home-'));
  writeCheckpoint(join(home, 'checkpoints'), 'v1', { weights: { 'model.safetensors': 'weights' } });
  const gateway = await new GatewayProcess({
    engines: ['http://127.0.0.1:9', 'relay'],
    databaseUrl: postgres.url,
    adminKey: 'the admin key',
    secret: 'a secret of sixteen characters',
    flags: ['--home', home],
  }).start();
  const listed = await fetch(`${gateway.url}/relay/checkpoints/v1`, {
    headers: { authorization: 'Bearer the admin key' },
  });
  expect(await listed.json()).toMatchObject({ files: [{ path: 'model.safetensors', bytes: 7 }] });
  const [page, styles, runs] = await Promise.all(
    ['/docs', '/docs/swagger-ui.css', '/ui/'].map((path) => fetch(`${gateway.url}${path}`)),
  );
  expect([page?.status, styles?.status, styles?.headers.get('content-type')]).toEqual([200, 200, 'text/css']);
  expect(runs?.status).toBe(existsSync(PAGE_INDEX) ? 200 : 404);
  await gateway.kill('SIGTERM');
  rmSync(home, { recursive: true });
});

test('`trialgate gateway`, bundled into one file, finds engines in the file and the pods that its flags name', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-engines-'));
  const server = await new KubernetesApiServer().start();
  writeFileSync(join(folder, 'engines.yaml'), '- http://127.0.0.1:9\n');
  server.apply({ name: 'a', ip: '10.0.0.1' });
  const file = ['--engines-file', join(folder, 'engines.yaml')];
  const named = ['--engines-kubernetes', 'app=engine', '--engines-kubernetes-namespace', 'serving'];
  const at = ['--engines-kubernetes-port', '8001', '--engines-kubernetes-api', server.url];
  const gateway = await new GatewayProcess({
    engines: [],
    databaseUrl: postgres.url,
    adminKey: 'the admin key',
    secret: 'a secret of sixteen characters',
    flags: [...file, ...named, ...at],
  }).start();
  const engines = async () => {
    const reply = await fetch(`${gateway.url}/engines`, { headers: { authorization: 'Bearer the admin key' } });
    const { engines: listed }: { engines: { url: string; found_by: string }[] } = await reply.json();
    return listed.map(({ url, found_by }) => `${found_by} ${url}`);
  };
  try {
    expect(await engines()).toEqual(['kubernetes http://10.0.0.1:8001', 'file http://127.0.0.1:9']);
    server.delete('a');
    await until(async () => (await engines()).length === 1);
  } finally {
    await gateway.kill('SIGTERM');
    await server.stop();
    rmSync(folder, { recursive: true });
  }
});

test('a gateway that starts without an admin key prints that its session routes are open to this machine', async () => {
  const child = spawn(
    process.execPath,
    [INSTALLS.main, 'gateway', '--port', '0', '--database-url', postgres.url, ...rest],
    { cwd: tmpdir(), env: { PATH: process.env['PATH'] }, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const exited = once(child, 'exit');
  const [line] = await once(child.stdout, 'data');
  child.kill('SIGTERM');
  await exited;
  expect(String(line)).toMatch(
    /listening on http:\/\/127\.0\.0\.1:\d+, 1 engine\(s\); without an admin key, its session routes are open to this machine/,
  );
});

test('with `--log-format json` every line that a gateway prints is a record, and that of a failed call names its run, trial, call and trace, and no key', async () => {
  const [adminKey, secret = ''] = ['the admin key', rest[1]];
  // The run has no engine, for which its call waits.
  const flags = ['--port', '0', '--database-url', postgres.url, '--log-format', 'json', '--hold-seconds', '0.2'];
  const child = spawn(process.execPath, [INSTALLS.main, 'gateway', ...flags, ...rest], {
    cwd: tmpdir(),
    env: { PATH: process.env['PATH'], TRIALGATE_ADMIN_KEY: adminKey },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit');
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data: Buffer) => void (said += data.toString()));
  try {
    const address = () => /listening on (http:[\d.:/]+)/.exec(said)?.[1];
    await until(() => address() !== undefined);
    const url = address() ?? '';
    const opened = await fetch(`${url}/sessions/a-trial`, {
      method: 'POST',
      headers: { authorization: `Bearer ${adminKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ run_id: 'a-run' }),
    });
    const { api_key: key }: { api_key: string } = await opened.json();
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const call = await fetch(`${url}/a-trial/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, traceparent: `00-${trace}-00f067aa0ba902b7-01` },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x' }] }),
    });
    expect(call.ok).toBe(false);
    await call.text();
    child.kill('SIGTERM');
    await exited;
    const records = said
      .split('\n')
      .filter(Boolean)
      .map((line) => logRecord.parse(JSON.parse(line)));
    expect(records[0]).toMatchObject({ level: 'info', process: 'gateway', pid: child.pid });
    expect(records.filter(({ trial_id: trial }) => trial === 'a-trial')).toContainEqual(
      expect.objectContaining({
        level: 'warning',
        run_id: 'a-run',
        call_id: expect.any(String),
        trace_id: trace,
        error: expect.any(String),
      }),
    );
    for (const each of [adminKey, key, secret]) expect(said).not.toContain(each);
  } finally {
    child.kill('SIGKILL');
  }
});

test('`trialgate gateway` ends with the exit code for bad input when the gateway, bundled into one file, refuses its settings', async () => {
  const child = spawn(
    process.execPath,
    [INSTALLS.main, 'gateway', '--host', '0.0.0.0', '--port', '0', '--database-url', postgres.url, ...rest],
    { cwd: tmpdir(), env: { PATH: process.env['PATH'] }, stdio: 'ignore' },
  );
  const [code] = await once(child, 'exit');
  expect(code).toBe(EXIT.badInput);
});

test('a gateway without a database starts the deployment’s PostgreSQL, says where its admin key is, and leaves nothing running', async () => {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-alone-'));
  const child = spawn(process.execPath, [INSTALLS.main, 'gateway', '--port', '0', '--engine', 'http://127.0.0.1:9'], {
    cwd: tmpdir(),
    env: {
      PATH: process.env['PATH'],
      TRIALGATE_HOME: home,
      TRIALGATE_POSTGRES_PORT: '0',
      TRIALGATE_TEMPORAL_PORT: '0',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit');
  let told = '';
  child.stderr.on('data', (data: Buffer) => void (told += data.toString()));
  try {
    const [line] = await Promise.race([once(child.stdout, 'data'), exited.then(() => Promise.reject(new Error(told)))]);
    const url = /listening on (\S+), 1 engine/.exec(String(line))?.[1] ?? '';
    expect(told).toContain(`the admin key of the session routes is in ${join(home, 'secrets.json')}`);
    const { admin_key: key }: { admin_key: string } = JSON.parse(await readFile(join(home, 'secrets.json'), 'utf8'));
    const open = (authorization: string) => fetch(`${url}/sessions`, { method: 'POST', headers: { authorization } });
    expect((await open('Bearer wrong')).status).toBe(401);
    expect((await open(`Bearer ${key}`)).ok).toBe(true);
    const postgresPid = readState(home)?.components[0]?.process;
    child.kill('SIGTERM');
    await exited;
    expect(postgresPid && isAlive(postgresPid)).toBe(false);
  } finally {
    child.kill('SIGKILL');
    await Promise.all([home, folderElsewhere(home)].map((each) => rm(each, { recursive: true, force: true })));
  }
});

// npx is not tested with SIGINT: npm passes it only to its shell, which waits for the command. A terminal signals all processes.
test.each(
  casesOf<readonly [starter: string, signal: NodeJS.Signals]>(
    [
      ['npx', 'SIGTERM'],
      ['another program', 'SIGINT'],
      ['another program', 'SIGKILL'],
    ],
    [
      ['npx', 'SIGHUP'],
      ['another program', 'SIGTERM'],
      ['another program', 'SIGHUP'],
    ],
  ),
)('a gateway that was started by %s ends when its starter gets %s', async (starter, signal) => {
  const launcher = 'import("./cli/launch.mjs").then(({ runMain }) => runMain(process.execPath, process.argv.slice(1)))';
  const [file, ...first] =
    starter === 'npx' ? ['npx', '--no-install', 'trialgate'] : [INSTALLS.node, '--eval', launcher];
  const args = [...first, 'gateway', '--port', '0', '--database-url', postgres.url, ...rest];
  const child = spawn(file, args, { cwd: REPOSITORY, stdio: ['ignore', 'pipe', 'inherit'], detached: true });
  try {
    const url = await new Promise<string>((resolve) => {
      child.stdout.on('data', (chunk) => /http:\S+:\d+/.exec(String(chunk))?.forEach(resolve));
    });
    expect((await fetch(`${url}/health`)).status).toBe(200);
    child.kill(signal);
    await until(() =>
      fetch(`${url}/health`).then(
        () => false,
        () => true,
      ),
    );
  } finally {
    endGroup(child.pid);
  }
});

test.each([
  ['npx', 'scripts', ['npx', '--no-install', 'trialgate']],
  ['a script whose path begins like npm', 'npm-tools', [INSTALLS.node, join(REPOSITORY, 'cli/trialgate.mjs')]],
])(
  'a gateway that a shell started in the background with %s goes on after the shell has ended',
  async (_, folder, command) => {
    const parent = mkdtempSync(join(tmpdir(), 'trialgate-shell-'));
    onTestFinished(() => rmSync(parent, { recursive: true }));
    mkdirSync(join(parent, folder));
    const script = join(parent, folder, 'start.sh');
    writeFileSync(script, '"$@" & read -r end\n');
    const args = ['gateway', '--port', '0', '--database-url', postgres.url, ...rest];
    // bash replaces itself by its only command, so that npm is the gateway's parent and this shell its grandparent.
    const env = { ...process.env, npm_config_script_shell: '/bin/bash' };
    const shell = spawn('sh', [script, ...command, ...args], {
      cwd: REPOSITORY,
      env,
      stdio: ['pipe', 'pipe', 'inherit'],
      detached: true,
    });
    try {
      const url = await new Promise<string>((resolve) => {
        shell.stdout.on('data', (chunk) => /http:\S+:\d+/.exec(String(chunk))?.forEach(resolve));
      });
      const exited = once(shell, 'exit');
      shell.stdin.end();
      await exited;
      // The gateway checks twice a second who started it.
      await delay(1500);
      expect((await fetch(`${url}/health`)).status).toBe(200);
    } finally {
      endGroup(shell.pid);
    }
  },
);

function endGroup(leader: number | undefined): void {
  try {
    if (leader !== undefined) process.kill(-leader, 'SIGKILL');
  } catch {
    // All processes have ended.
  }
}
