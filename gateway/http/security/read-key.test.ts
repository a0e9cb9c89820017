import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runs } from '../../../store/schema.ts';
import { ADMIN_KEY, ASK, IN_WORKERD, SECRET, useSharedGateway } from '../../../tests/support/harness/gateways.ts';
import { OPERATIONS } from '../openapi/operations.ts';
import { startGateway } from '../../runtimes/node/start-gateway.ts';

const READ_KEY = 'a key that only reads';
const folder = mkdtempSync(join(tmpdir(), 'trialgate-read-key-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const gateway = useSharedGateway({
  readKey: READ_KEY,
  engines: ['http://127.0.0.1:9', 'relay'],
  // A Worker has no files.
  ...(IN_WORKERD ? {} : { checkpoints: folder }),
});

/** What the read-only key opens. A new route that a page shows belongs here. */
const READ = [
  'GET /deployment',
  'GET /engines',
  'GET /runs',
  'GET /runs/:run',
  'GET /runs/:run/events',
  'GET /runs/:run/dropped',
  'GET /runs/:run/groups',
  'GET /runs/:run/iterations',
  'GET /runs/:run/iterations/:iteration/timeline',
  'GET /runs/:run/search',
  'GET /sessions',
  'GET /sessions/:trial',
  'GET /sessions/:trial/blobs/:sha256',
  'GET /sessions/:trial/calls/:call/request',
  'GET /sessions/:trial/samples',
  'GET /sessions/:trial/tokens',
  'GET /sessions/:trial/transcript',
  'GET /sessions/export',
];
/** What it does not: what changes something, hands out keys or weights, or is an agent's, a run's or a relay worker's. */
const CLOSED = [
  'DELETE /sessions/:trial',
  'POST /engines',
  'POST /runs',
  'POST /runs/:run',
  'POST /runs/:run/groups',
  'POST /runs/:run/trials/:trial/reward',
  'POST /sessions',
  'POST /sessions/:trial',
  'POST /sessions/:trial/complete',
  'POST /sessions/:trial/reward',
  'POST /sessions/batch_delete',
];
const OF_RELAY_WORKERS = ['DELETE', 'GET', 'POST']
  .map((method) => `${method} /relay/workers/:worker{[^/]+}${method === 'DELETE' ? '' : '/*'}`)
  .concat(['GET /relay/checkpoints/:name', 'GET /relay/checkpoints/:name/:sha256', 'GET /relay/workers']);
/** What needs no key, or shows more with one. */
const OPEN = [
  'GET /docs',
  'GET /docs/:file',
  'GET /docs/start.js',
  'GET /health',
  'GET /metrics',
  'GET /openapi.json',
  'GET /ui',
  'GET /ui/*',
  'GET /ui/assets/:file',
];

/** The protocols' routes, which a trial's own key opens. */
const isOfAgents = (route: string): boolean => /^\w+ \/(:trial\/|v1(beta)?(\/|$))/.test(route);

const ask = (method: string, path: string, key: string | null) =>
  fetch(`${gateway.gateway.url}${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...(key === null ? {} : { authorization: `Bearer ${key}` }) },
    ...(method === 'POST' ? { body: '{}' } : {}),
  });

const inPlace = { trial: 'a-trial', run: 'a-run', iteration: '0', worker: 'w', sha256: '0'.repeat(64) };
/** Returns a path that the pattern matches. */
const pathOf = (pattern: string, values: Record<string, string> = inPlace): string =>
  pattern.replaceAll(/:(\w+)(\{[^}]*\})?/g, (_, name: string) => values[name] ?? 'x').replace('*', 'x');

test('each route of the gateway is on one of the lists that say whether the read-only key opens it', () => {
  const routes = gateway.gateway.routes
    .filter(({ method }) => method !== 'ALL')
    .map(({ method, path }) => `${method} ${path}`);
  const named = new Set([...READ, ...CLOSED, ...OPEN, ...(IN_WORKERD ? [] : OF_RELAY_WORKERS)]);
  const others = [...new Set(routes)].filter((route) => !isOfAgents(route));
  expect(others.toSorted()).toEqual([...named].toSorted());
  expect(routes.filter(isOfAgents).length).toBeGreaterThan(10);
});

test.each(READ)('the read-only key opens %s, as the admin key does, and no other key', async (route) => {
  const [method = '', pattern = ''] = route.split(' ');
  const trial = await gateway.trial();
  const path = pathOf(pattern, { ...inPlace, trial: trial.id });
  const [read, admin] = await Promise.all([ask(method, path, READ_KEY), ask(method, path, ADMIN_KEY)]);
  expect(read.status).toBe(admin.status);
  expect([200, 400, 404]).toContain(read.status);
  for (const key of [null, trial.key, `${READ_KEY}x`, READ_KEY.slice(0, -1), ''])
    expect((await ask(method, path, key)).status).toBe(401);
  if (method === 'GET') expect((await ask('HEAD', path, READ_KEY)).status).toBe(read.status);
});

test.each([...CLOSED, ...OF_RELAY_WORKERS])('the read-only key does not open %s', async (route) => {
  const [method = '', pattern = ''] = route.split(' ');
  const reply = await ask(method, pathOf(pattern), READ_KEY);
  // A Worker has no checkpoints, so it has no route of theirs.
  const refused = IN_WORKERD && pattern.startsWith('/relay/checkpoints/') ? [404] : [401, 403];
  expect(refused).toContain(reply.status);
  await reply.text();
});

test('the read-only key changes nothing and opens no call of the model', async () => {
  const trial = await gateway.trial();
  expect((await ask('DELETE', `/sessions/${trial.id}`, READ_KEY)).status).toBe(403);
  const refused = await ask('POST', `/sessions/${trial.id}/complete`, READ_KEY);
  expect([refused.status, (await refused.json()).error.code]).toEqual([403, 'read_only_key']);
  expect((await gateway.chat(trial.id, READ_KEY, ASK)).status).toBe(401);
  expect((await gateway.post('/v1/chat/completions', READ_KEY, ASK)).status).toBe(401);
  const session = await (await ask('GET', `/sessions/${trial.id}`, READ_KEY)).json();
  expect([session.completed, session.turns]).toEqual([false, []]);
});

test('what the read-only key reads has no key: no trial’s, and none that a person wrote into a run file', async () => {
  const trial = await gateway.trial({ runId: 'with-keys' });
  const secrets = [
    'sk-of-an-agent',
    'a-password',
    'sk-of-a-judge',
    'sk-of-a-command',
    'sk-of-a-query',
    'sk-of-a-job',
    'its@end',
  ];
  const config = {
    model: 'm',
    agents: [
      {
        name: 'own',
        command: ['run', '--api-key', 'sk-of-a-command', '--token=sk-of-a-command', '-c', 'x --secret sk-of-a-command'],
        env: { OTHER_KEY: 'sk-of-an-agent' },
      },
    ],
    reward: {
      function: 'judge.py:judge',
      options: { api_key: 'sk-of-a-judge', url: 'http://h/?token=sk-of-a-query&n=1', max_tokens: 5 },
    },
    sandbox: { kind: 'slurm', options: ['--export=JUDGE_KEY=sk-of-a-job', '--qos=high'] },
    loggers: [{ name: 'mlflow', tracking_uri: 'http://someone:a-password-with-its@end@host:5000' }],
  };
  await gateway.db
    .insert(runs)
    .values({ id: 'with-keys', config })
    .onConflictDoUpdate({ target: runs.id, set: { config } });
  const read = async (path: string, key: string) => await (await ask('GET', path, key)).text();
  const shown = await read('/runs/with-keys', READ_KEY);
  expect(JSON.parse(shown).config).toEqual({
    model: 'm',
    agents: [
      {
        name: 'own',
        command: ['run', '--api-key', '[hidden]', '--token=[hidden]', '-c', 'x --secret [hidden]'],
        env: { OTHER_KEY: '[hidden]' },
      },
    ],
    reward: {
      function: 'judge.py:judge',
      options: { api_key: '[hidden]', url: 'http://h/?token=[hidden]&n=1', max_tokens: 5 },
    },
    sandbox: { kind: 'slurm', options: ['--export=JUDGE_KEY=[hidden]', '--qos=high'] },
    loggers: [{ name: 'mlflow', tracking_uri: 'http://[hidden]@host:5000' }],
  });
  expect(JSON.parse(await read('/runs/with-keys', ADMIN_KEY)).config).toEqual(config);
  // The stream of a run's events has no end, and says only that something changed.
  for (const pattern of READ.filter((each) => !each.endsWith('/events'))) {
    const text = await read(
      pathOf(pattern.split(' ')[1] ?? '', { ...inPlace, trial: trial.id, run: 'with-keys' }),
      READ_KEY,
    );
    for (const secret of [...secrets, trial.key, SECRET, ADMIN_KEY, READ_KEY]) expect(text).not.toContain(secret);
  }
});

test('with the read-only key `/metrics` shows how trials ended, for a Prometheus that changes nothing', async () => {
  const [open, read] = await Promise.all([ask('GET', '/metrics', null), ask('GET', '/metrics', READ_KEY)]);
  expect(await open.text()).not.toContain('trialgate_attempts');
  expect(await read.text()).toContain('trialgate_attempts');
});

test('a gateway refuses a read-only key that is the admin key, and one without an admin key, where no key protects anything', async ({
  skip,
}) => {
  skip(IN_WORKERD, 'runtimes/workerd/settings.test.ts has it for a Worker');
  const options = { host: '127.0.0.1', port: 0, engines: [], databaseUrl: gateway.postgres.url, secret: SECRET };
  await expect(startGateway({ ...options, adminKey: ADMIN_KEY, readKey: ADMIN_KEY })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('another key than admin_key'),
  });
  await expect(startGateway({ ...options, adminKey: null, readKey: READ_KEY })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringContaining('set admin_key too'),
  });
});

test('the API’s document names the read-only key for each route that it opens, and for no other', () => {
  const read = READ.map((route) => route.replaceAll(/:(\w+)/g, '{}'));
  const described = OPERATIONS.filter(({ method, keys }) => method === 'get' && keys.includes('admin')).map(
    ({ method, path }) => `${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, '{}')}`,
  );
  expect(described.filter((route) => !read.includes(route))).toEqual([]);
});
