import { beforeEach, expect, test } from 'vitest';
import { TrialgateError } from '../../core/errors.ts';
import { FakeOperator } from '../../tests/support/fakes/fake-operator.ts';
import { ADMIN_KEY, IN_WORKERD, eventually, useGateway } from '../../tests/support/harness/gateways.ts';
import { rawRequest, rawText } from '../../tests/support/harness/raw-request.ts';
import { startLine, type StartLine } from './openapi/run-schemas.ts';
import { startLines } from './start-lines.ts';
import type { OperateRun, StartRun } from './operate.ts';

let operator: FakeOperator;
const operateRun: OperateRun = (...asked) => operator.operateRun(...asked);
const startRun: StartRun = (...asked) => operator.startRun(...asked);
const gateway = useGateway({ operateRun, startRun });
beforeEach(({ skip }) => {
  skip(IN_WORKERD, 'a Worker changes no runs');
  operator = new FakeOperator();
});

const ask = async (body: unknown, headers: Record<string, string> = {}, run = 'first') => {
  const reply = await fetch(`${gateway.gateway.url}/runs${run === '' ? '' : `/${run}`}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  return { status: reply.status, text: await reply.text() };
};

test.each([
  { verb: 'pause', seconds: 90 },
  { verb: 'resume', retry_failed: true },
  { verb: 'stop' },
  { verb: 'cancel' },
  { verb: 'redo' },
  { verb: 'redo', iteration: 5, take: 2 },
  { verb: 'fork', version: 2, run_id: 'other', iterations: 3, file: 'seed: 7' },
])('a run is asked what the body says, and the reply has what it answered: %j', async (body) => {
  expect(await ask(body)).toEqual({
    status: 200,
    text: JSON.stringify({ run_id: 'first', message: `run first did ${body.verb}` }),
  });
  expect(operator.asked).toEqual([`first ${JSON.stringify(body)}`]);
});

test.each([
  [{ verb: 'start' }, 400],
  [{ verb: 'stop', seconds: 3 }, 400],
  [{ verb: 'pause', seconds: 'long' }, 400],
  [{ verb: 'fork' }, 400],
  [{ verb: 'fork', version: 1, run_id: '../x' }, 400],
  [{ verb: 'fork', version: 1, settings: { agents: ['/bin/sh'] } }, 400],
  ['{"verb":', 400],
  ['[]', 400],
  [{ verb: 'fork', version: 1, file: 'x'.repeat(2 ** 16 + 1) }, 400],
  [{ verb: 'fork', version: 1, file: 'x'.repeat(2 ** 19) }, 413],
])('a wrong body is refused, and no run is asked: %j', async (body, status) => {
  expect((await ask(body)).status).toBe(status);
  expect(operator.asked).toEqual([]);
});

test.each(['--home', 'a%2Fb', 'x'.repeat(65)])('a run is not asked by a name that no run can have: %s', async (run) => {
  expect((await ask({ verb: 'stop' }, {}, run)).status).toBe(404);
  expect(operator.asked).toEqual([]);
});

test('no run is asked without the admin key', async () => {
  for (const authorization of ['', 'Bearer wrong'])
    expect((await ask({ verb: 'cancel' }, { authorization })).status).toBe(401);
  expect(operator.asked).toEqual([]);
});

const send = (headers: string[], adminKey: string | null, host = 'localhost:8700') =>
  rawRequest(
    gateway.gateway.url,
    rawText({
      method: 'POST',
      target: '/runs/first',
      host,
      headers,
      body: '{"verb":"cancel"}',
      ...(adminKey === null ? {} : { key: adminKey }),
    }),
  );

const JSON_TYPE = 'Content-Type: application/json';
const OWN = [
  [],
  ['Origin: http://localhost:8700'],
  ['Sec-Fetch-Site: same-origin', 'Origin: http://localhost:8700'],
] as const;
// A form of another site can send these without a question.
const FORMS = [[], ['Content-Type: text/plain'], ['Content-Type: application/jsonp']];

test('without an admin key a run is asked by the gateway’s own page and by programs, and never by a page of another origin', async () => {
  await gateway.restart({ operateRun, adminKey: null });
  for (const foreign of [
    ['Origin: http://localhost:3000'],
    ['Origin: null'],
    ['Origin: https://evil.example'],
    ['Sec-Fetch-Site: same-site', 'Origin: http://localhost:3000'],
    ['Sec-Fetch-Site: cross-site'],
    ['Sec-Fetch-Site: none'],
  ])
    expect([foreign, (await send([JSON_TYPE, ...foreign], null)).status]).toEqual([foreign, 403]);
  // A name of the page's site may lead to this machine: then the browser takes both for one origin.
  const rebound = [JSON_TYPE, 'Sec-Fetch-Site: same-origin', 'Origin: http://evil.example'];
  expect((await send(rebound, null, 'evil.example')).status).toBe(403);
  for (const type of FORMS) expect([type, (await send(type, null)).status]).toEqual([type, 415]);
  expect(operator.asked).toEqual([]);
  for (const own of OWN)
    expect([own, (await send([`${JSON_TYPE}; charset=utf-8`, ...own], null)).status]).toEqual([own, 200]);
  expect(operator.asked).toHaveLength(OWN.length);
});

test('with the admin key a run is asked also behind a proxy by another name, as JSON alone', async () => {
  for (const type of FORMS) expect([type, (await send(type, ADMIN_KEY)).status]).toEqual([type, 415]);
  expect(operator.asked).toEqual([]);
  for (const origin of [...OWN, ['Origin: http://trialgate.example']])
    expect([origin, (await send([JSON_TYPE, ...origin], ADMIN_KEY)).status]).toEqual([origin, 200]);
  expect(operator.asked).toHaveLength(OWN.length + 1);
});

test('a verb that is asked twice is done once, and both get its reply; another verb is refused meanwhile, except a cancel', async () => {
  const done = Promise.withResolvers<void>();
  operator.answer = async (runId) => {
    await done.promise;
    return { run_id: runId, message: 'done' };
  };
  const both = [ask({ verb: 'redo' }), ask({ verb: 'redo' })];
  await eventually(() => operator.asked.length === 1);
  const other = await ask({ verb: 'pause' });
  expect(other).toMatchObject({ status: 503, text: expect.stringContaining('run first has not yet answered to redo') });
  const second = ask({ verb: 'stop' }, {}, 'second');
  await eventually(() => operator.asked.length === 2);
  expect(await ask({ verb: 'stop' }, {}, 'third')).toMatchObject({ status: 503 });
  const cancel = ask({ verb: 'cancel' });
  await eventually(() => operator.asked.length === 3);
  done.resolve();
  for (const reply of await Promise.all([...both, second, cancel])) expect(reply.status).toBe(200);
  expect(operator.asked).toEqual(['first {"verb":"redo"}', 'second {"verb":"stop"}', 'first {"verb":"cancel"}']);
  await ask({ verb: 'redo' });
  expect(operator.asked).toHaveLength(4);
});

test('what a run refuses has the status and the sentence of its reason, and a defect has none', async () => {
  for (const [code, status] of [
    ['bad_input', 400],
    ['not_found', 404],
    ['missing_prerequisite', 500],
  ] as const) {
    operator.answer = () => Promise.reject(new TrialgateError(code, 'the reason'));
    expect(await ask({ verb: 'stop' })).toMatchObject({ status, text: expect.stringMatching(`the reason.*${code}`) });
  }
  operator.answer = () => Promise.reject(new Error('a secret'));
  const { status, text } = await ask({ verb: 'stop' });
  expect([status, text]).toEqual([500, expect.not.stringContaining('a secret')]);
});

test('a gateway that stops ends the verb under way, and does not call for it to be asked again unseen', async () => {
  operator.answer = (_run, _verb, signal) =>
    new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const reply = gateway.post('/runs/first', ADMIN_KEY, { verb: 'cancel' });
  await eventually(() => operator.asked.length === 1);
  await gateway.restart();
  const { status, headers } = await reply;
  expect([status, headers.get('x-should-retry')]).toEqual([503, 'false']);
  expect(await (await reply).text()).toMatch(
    /before run first answered to cancel.*look at its status.*verb_unanswered/,
  );
});

test('a gateway without Temporal asks no run, and says which command does it', async () => {
  await gateway.restart();
  expect(await ask({ verb: 'fork', version: 2 })).toMatchObject({
    status: 501,
    text: expect.stringContaining('`npx trialgate fork first@2`'),
  });
});

const start = (body: unknown, headers: Record<string, string> = {}) => ask(body, headers, '');
const linesOf = (text: string): StartLine[] =>
  text
    .trim()
    .split('\n')
    .map((line) => startLine.parse(JSON.parse(line)));

test('a run file is started with its progress line by line, and what comes before the first line decides the status', async () => {
  const asked = { file: 'model: m', file_name: 'm.yaml', as: 'first', run_id: 'next' };
  const { status, text } = await start(asked);
  expect([status, linesOf(text)]).toEqual([
    200,
    [{ progress: 'agents and verifiers work' }, { run_id: 'next', message: 'run next started' }],
  ]);
  expect(operator.started).toEqual([asked]);
  operator.start = () => Promise.reject(new TrialgateError('bad_input', 'model: expected a string'));
  expect(await start(asked)).toMatchObject({ status: 400, text: expect.stringContaining('model: expected a string') });
  operator.start = async (_asked, report) => {
    report('packages are installed');
    throw new TrialgateError('bad_input', 'the agent failed');
  };
  expect(linesOf((await start(asked)).text)).toEqual([
    { progress: 'packages are installed' },
    { error: { status: 400, code: 'bad_input', message: 'the agent failed' } },
  ]);
});

test('an answer that is silent has empty lines, which keep proxies from cutting it', async () => {
  const done = Promise.withResolvers<{ run_id: string; message: string }>();
  const lines = startLines(() => done.promise, { logged: () => {}, beatMs: 1 });
  expect((await lines.next()).value).toEqual({});
  done.reject(new TrialgateError('bad_input', 'the agent failed'));
  const rest: StartLine[] = [];
  for await (const line of lines) rest.push(line);
  expect(rest.at(-1)).toEqual({ error: { status: 400, code: 'bad_input', message: 'the agent failed' } });
});

test('a start that fails when nobody reads its answer any more is in the log', async () => {
  const done = Promise.withResolvers<never>();
  const logged: unknown[] = [];
  const lines = startLines(
    (report) => {
      report('it is tried');
      return done.promise;
    },
    { logged: (error) => logged.push(error) },
  );
  await lines.next();
  await lines.return();
  const failure = new TrialgateError('bad_input', 'the agent failed');
  done.reject(failure);
  await eventually(() => logged.length > 0);
  expect(logged).toEqual([failure]);
});

test('a gateway that stops ends a start that nobody waits for, and waits until it has ended', async () => {
  const ended: string[] = [];
  operator.start = (_asked, report, signal) => {
    report('it is tried');
    return new Promise((_resolve, reject) =>
      signal.addEventListener('abort', () =>
        setTimeout(() => {
          ended.push('its sandbox is removed');
          reject(signal.reason);
        }, 200),
      ),
    );
  };
  const left = new AbortController();
  const { body } = await fetch(`${gateway.gateway.url}/runs`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
    body: '{"file":""}',
    signal: left.signal,
  });
  await body?.getReader().read();
  left.abort();
  await gateway.restart({ operateRun, startRun });
  expect(ended).toEqual(['its sandbox is removed']);
});

test('one run file is checked at a time, also if nobody waits for the answer', async () => {
  const done = Promise.withResolvers<void>();
  operator.start = async (_asked, report) => {
    report('it is tried');
    await done.promise;
    return { run_id: 'slow', message: 'started' };
  };
  const left = new AbortController();
  const { body } = await fetch(`${gateway.gateway.url}/runs`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ADMIN_KEY}`, 'content-type': 'application/json' },
    body: '{"file":""}',
    signal: left.signal,
  });
  await body?.getReader().read();
  left.abort();
  expect(await start({ file: '' })).toMatchObject({ status: 503, text: expect.stringContaining('verb_under_way') });
  operator.start = async () => ({ run_id: 'second', message: 'started' });
  done.resolve();
  await eventually(async () => (await start({ file: '' })).status === 200);
});

test.each([
  [{}, 400],
  [{ file: 7 }, 400],
  [{ file: '', check: false }, 400],
  [{ file: '', file_name: 'a\u0007.yaml' }, 400],
  [{ file: '', file_name: 'a\u202e.yaml' }, 400],
  [{ file: '', as: '../x' }, 400],
  [{ file: '', run_id: 'a/b' }, 400],
  ['{"file":', 400],
  [{ file: 'x'.repeat(2 ** 16 + 1) }, 400],
  [{ file: 'x'.repeat(2 ** 19) }, 413],
])('a wrong start is refused, and nothing is started: %#', async (body, status) => {
  expect((await start(body)).status).toBe(status);
  expect((await start(body, { authorization: 'Bearer wrong' })).status).toBe(401);
  expect(operator.started).toEqual([]);
});

test('a gateway that starts no runs says which command does it, and the list of runs says which do', async () => {
  const list = async () => (await gateway.admin('GET', '/runs')).json();
  expect(await list()).toMatchObject({ is_operable: true });
  await gateway.restart();
  expect(await list()).toMatchObject({ is_operable: false });
  expect(await start({ file: '', file_name: 'x.yaml' })).toMatchObject({
    status: 501,
    text: expect.stringContaining('`npx trialgate train x.yaml`'),
  });
});

test('why the database was away for a verb is in the log, and not in the answer', async () => {
  operator.answer = () => {
    const error = new TrialgateError('store_unavailable', 'the database cannot be reached');
    return Promise.reject(Object.assign(error, { stack: 'ECONNREFUSED at a secret place' }));
  };
  const { status, text } = await ask({ verb: 'stop' });
  expect([status, text]).toEqual([503, expect.not.stringContaining('ECONNREFUSED')]);
  expect(gateway.log.join('\n')).toContain('ECONNREFUSED');
});
