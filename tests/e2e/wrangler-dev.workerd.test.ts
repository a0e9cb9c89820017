import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { freePort } from '../../core/free-port.ts';
import { TestPostgres } from '../support/harness/postgres.ts';
import { until } from '../support/harness/until.ts';
import { bundleWorker } from '../support/harness/bundle-worker.ts';
import { TokenEngine } from '../support/fakes/token-engine.ts';
import { trialOverHttp } from '../support/harness/trial-over-http.ts';

const ADMIN_KEY = 'the admin key';
const CONFIG = ['--config', 'deploy/wrangler.jsonc'];
const variables = (given: Record<string, string>) =>
  Object.entries(given).flatMap(([name, value]) => ['--var', `${name}:${value}`]);

test('the compressed upload of the Cloudflare Worker is smaller than 1 MB', async () => {
  const { gzipBytes, remove } = await bundleWorker();
  await remove();
  expect(gzipBytes).toMatch(/^\d{1,3}\.\d+ KiB$/);
});

/** Runs the commands of docs/workers.md with a free port and secrets of the test. */
test('the gateway starts under `wrangler dev` and records the calls that it answers', async () => {
  await using stack = new AsyncDisposableStack();
  const home = await mkdtemp(join(tmpdir(), 'trialgate-wrangler-'));
  stack.defer(() => rm(home, { recursive: true, force: true }));
  const postgres = await TestPostgres.create();
  stack.defer(() => postgres.close());
  const engine = await new TokenEngine().start();
  stack.defer(() => engine.stop());
  const [port, inspector] = [await freePort('127.0.0.1'), await freePort('127.0.0.1')];
  const env = {
    PATH: process.env['PATH'],
    HOME: home,
    WRANGLER_SEND_METRICS: 'false',
    TRIALGATE_DATABASE_URL: postgres.url,
    TRIALGATE_ENGINES: engine.url,
    CLOUDFLARE_HYPERDRIVE_LOCAL_CONNECTION_STRING_HYPERDRIVE: postgres.url.replace('postgres@', 'postgres:any@'),
  };
  await promisify(execFile)(process.execPath, ['deploy/prepare.ts'], { cwd: REPOSITORY, env });
  const secrets = {
    TRIALGATE_ENGINES: engine.url,
    TRIALGATE_SECRET: 'a secret of sixteen characters',
    TRIALGATE_ADMIN_KEY: ADMIN_KEY,
  };
  const places = [
    '--ip',
    '127.0.0.1',
    '--port',
    `${port}`,
    '--inspector-port',
    `${inspector}`,
    '--persist-to',
    join(home, 'state'),
  ];
  const wrangler = spawn(
    process.execPath,
    ['node_modules/wrangler/bin/wrangler.js', 'dev', ...CONFIG, ...places, ...variables(secrets)],
    { cwd: REPOSITORY, env, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let said = '';
  for (const output of [wrangler.stdout, wrangler.stderr]) output.on('data', (text) => (said += String(text)));
  const exited = once(wrangler, 'exit');
  stack.defer(async () => {
    wrangler.kill('SIGTERM');
    await exited;
  });
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (wrangler.exitCode !== null) throw new Error(said);
    return (await fetch(`${url}/health`).catch(() => null))?.ok;
  });
  const trial = await trialOverHttp({ url, adminKey: ADMIN_KEY }, 'edge');
  engine.script.push({ text: 'hello from the edge' }, { text: 'and again' });
  const asked = { model: 'policy', messages: [{ role: 'user', content: 'hi' }] };
  expect(await (await trial.chat(asked)).json()).toMatchObject({
    choices: [{ message: { content: 'hello from the edge' } }],
  });
  expect(await (await trial.chat({ ...asked, stream: true })).text()).toContain('[DONE]');
  expect(await trial.session()).toMatchObject({ turns: [{ status: 'completed' }, { status: 'completed' }] });
  expect(await trial.samples()).toMatchObject({ samples: [{}, {}] });
  const seen = await Promise.all(
    ['/docs', '/docs/swagger-ui.css', '/swagger-ui.css', '/'].map(
      async (path) => (await fetch(`${url}${path}`)).status,
    ),
  );
  expect(seen).toEqual([200, 200, 404, 404]);
});
