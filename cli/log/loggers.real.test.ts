import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test, type TestContext } from 'vitest';
import { z } from 'zod';
import { REPOSITORY } from '../../core/repository.ts';
import type { LoggerName, LoggerSetting } from '../../core/run-config/loggers.ts';
import { openDatabase } from '../../store/database.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { trials } from '../../store/schema.ts';
import { killLoggerPrograms } from '../../tests/support/harness/logger-programs.ts';
import { startMlflow, type MlflowServer } from '../../tests/support/harness/mlflow-server.ts';
import { withTemporaryStack } from '../../tests/support/harness/temporary-deployment.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useServer } from '../../tests/support/harness/use-database.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { logOnce } from '../../tests/support/scenarios/log-once.ts';
import { LoggedRun } from '../../tests/support/scenarios/logged-run.ts';
import { INSTALLS } from '../folders.ts';
import { INSTALL_LOG } from '../install/install.ts';
import { installLoggers, loggerPython } from '../install/loggers.ts';
import { destinationOf } from './destination.ts';
import { followRuns } from './follow-runs.ts';
import { readRunLog } from './logger-entries.ts';
import { LoggerProcess } from './logger-process.ts';
import { loggerWarnings, readLoggerState } from './logger-state.ts';
import { readTrialTrace } from './read-trial-traces.ts';

const store = useServer();
const { signal } = new AbortController();
const NAMES: Exclude<LoggerName, 'otel'>[] = ['tensorboard', 'wandb', 'trackio', 'mlflow'];

/** The limit of this tier is 900 s. */
const INSTALL_MS = 600_000;

let home = '';
let settings: Record<Exclude<LoggerName, 'otel'>, LoggerSetting>;
/** Mlflow's server, or why the libraries cannot be had. */
let mlflow: MlflowServer | string;

/** The entries that each logger has, by the run's name in it. */
type Entries = [step: number, kind: string, value: number][];
const read = z.record(z.string(), z.record(z.string(), z.array(z.tuple([z.number(), z.string(), z.number()]))));
/** A trace of a trial, as mlflow's own reader tells it. */
const readTraces = z.object({
  traces: z.array(
    z.object({
      trial: z.string(),
      run: z.string(),
      outcome: z.string(),
      rewards: z.record(z.string(), z.number()),
      tokens: z.number(),
      spans: z.array(z.tuple([z.string(), z.string(), z.string()])),
    }),
  ),
});
let found: Record<string, Record<string, Entries>>;
let traces: z.output<typeof readTraces>['traces'];
let mlflowRuns: z.output<typeof mlflowRun>[];

/** The logs of a run whose third step was redone. */
const BEFORE: Entries = [
  [0, 'eval', 0],
  [1, 'train', 1],
  [2, 'train', 2],
];
const EXPECTED: Record<string, Entries> = {
  first: [...BEFORE, [3, 'train', 3]],
  'first@4': [...BEFORE, [3, 'train', 4]],
};

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'trialgate-loggers-'));
  const within = AbortSignal.timeout(INSTALL_MS);
  mlflow = await installLoggers(INSTALL_LOG, within).then(
    () => startMlflow(within),
    async (error: unknown) => {
      if (await reachesIndex()) throw error;
      return String(error);
    },
  );
  if (typeof mlflow !== 'string') found = await logAll(mlflow);
});
afterAll(async () => {
  if (typeof mlflow === 'object') await mlflow.remove();
  await rm(home, { recursive: true, force: true });
});

/** True where the package index answers, so that an install must succeed. */
async function reachesIndex(): Promise<boolean> {
  const index = process.env['UV_DEFAULT_INDEX'] || process.env['UV_INDEX_URL'] || 'https://pypi.org/simple/';
  const reply = await fetch(index, { method: 'HEAD', signal: AbortSignal.timeout(30_000) }).catch(() => null);
  return reply !== null;
}

/** Skips a test where the package index cannot be reached. */
function requireLibraries(skip: TestContext['skip']): void {
  if (typeof mlflow === 'string') skip(`the loggers' libraries cannot be installed from the package index: ${mlflow}`);
}

/** Logs a run of three steps, with kills, an outage of mlflow's server and a redo. */
async function logAll(server: MlflowServer): Promise<typeof found> {
  settings = {
    tensorboard: { name: 'tensorboard' },
    trackio: { name: 'trackio' },
    csv: { name: 'csv' },
    wandb: { name: 'wandb', mode: 'offline' },
    mlflow: { name: 'mlflow', tracking_uri: server.url },
  };
  const run = await new LoggedRun(store.db, 'first').begin(NAMES.map((name) => settings[name]));
  const end = new AbortController();
  const followed = followRuns({ db: store.db, home, pollMs: 100, report: () => {} }, end.signal);
  try {
    await run.evaluate(0);
    await run.trainStep(0);
    await run.trainStep(1);
    await haveWritten(3);
    await server.cut();
    expect(killLoggerPrograms()).toBe(NAMES.length);
    await run.trainStep(2);
    await until(() =>
      loggerWarnings(home).some((each) => each.startsWith('the logger mlflow of run first has failed since ')),
    );
    await haveWritten(4, 'tensorboard', 'wandb', 'trackio');
    await server.restore();
    await haveWritten(4);
    await hasTraces('first', 8);
    expect(loggerWarnings(home)).toEqual([]);
    await run.redo(2);
    await run.trainStep(2, 4, { take: 2, parent: 2 });
    await until(() => NAMES.every((name) => stateOf(name)?.name === 'first@4'));
    await haveWritten(4);
    await hasTraces('first@4', 8);
    // A trial that was carried over ends after its iteration.
    await addTrial('2.2');
    await run.end();
    await until(() => NAMES.every((name) => stateOf(name)?.complete));
  } finally {
    end.abort();
    await followed;
  }
  // A late logger, and a second one beside what a logger has already.
  const log = { db: store.db, home, runId: 'first' };
  await logOnce({ ...log, logger: { name: 'tensorboard', folder: join(home, 'late') } });
  // One trace is missing of an iteration whose others are of the branch before the redo.
  await addTrial('1.1');
  expect(await logOnce({ ...log, logger: settings.mlflow })).toMatchObject({ written: 4, traces: 10 });
  await logCalls();
  return readBack(server.url);
}

/** Adds a third trial to the only group of an iteration. */
async function addTrial(take: string): Promise<void> {
  const row = { runId: 'first', task: 't', agent: 'oneshot', status: 'completed', outcome: 'scored' } as const;
  const at = { id: `first-${take}/0-2`, groupId: `first/${take}/0`, trialIndex: 2 };
  await store.db.insert(trials).values({ ...row, ...at });
}

/** Logs a run one of whose trials made calls, twice, with one trace for each iteration. */
async function logCalls(): Promise<void> {
  const run = await new LoggedRun(store.db, 'calls').begin();
  await run.trainStep(0);
  const trialId = 'calls-0.1/0-0';
  const setTrial = (values: Partial<typeof trials.$inferInsert>) =>
    store.db.update(trials).set(values).where(eq(trials.id, trialId));
  await setTrial({ status: 'created', outcome: null });
  const calls = [{ id: 'c', type: 'function', function: { name: 'ls', arguments: '{"path": "."}' } }];
  const asks = { role: 'assistant', content: 'half a pair: \ud800, NUL: \0', tool_calls: calls };
  const result = { role: 'tool', tool_call_id: 'c', content: 'a.txt' };
  const request = { model: 'm', messages: [{ role: 'user', content: 'Look.' }] };
  await recordCalls(store.db, [
    callRecord({
      trialId,
      request,
      response: { choices: [{ index: 0, message: asks, finish_reason: 'tool_calls' }] },
      promptTokenIds: Int32Array.from([1, 2, 3]),
      choice: { completionTokenIds: Int32Array.from([4]) },
    }),
    callRecord({
      trialId,
      status: 'failed',
      httpStatus: 500,
      fault: 'engine',
      reason: 'engine_500: no memory',
      request: { ...request, messages: [...request.messages, asks, result] },
    }),
  ]);
  await setTrial({ status: 'completed', outcome: 'scored' });
  await run.end();
  const logger = { ...settings.mlflow, traces: 1 };
  const log = { db: store.db, home, runId: 'calls', logger };
  await logOnce(log);
  await logOnce(log);
}

const stateOf = (name: keyof typeof settings) => readLoggerState(home, 'first', destinationOf(home, settings[name]));

/** Waits until mlflow has so many traces of the entries of a branch. */
const hasTraces = (name: string, count: number) =>
  until(() => {
    const state = stateOf('mlflow');
    return state?.name === name && state.traces === count;
  }, 300_000);

/** Waits until loggers, all or these, have so many entries and do not fail. */
async function haveWritten(count: number, ...names: (keyof typeof settings)[]): Promise<void> {
  const waits = names.length > 0 ? names : NAMES;
  const has = (name: keyof typeof settings): boolean => {
    const state = stateOf(name);
    return state?.written === count && state.failing_since === null;
  };
  await until(() => waits.every(has), 300_000);
}

async function readBack(url: string): Promise<typeof found> {
  const folder = (name: string) => join(home, 'loggers', name);
  const stores = ['tensorboard', 'wandb', 'trackio'].map((name) => `${name}=${folder(name)}`);
  const python = await loggerPython('tensorboard');
  const run = (...args: string[]) =>
    promisify(execFile)(python, [join(REPOSITORY, 'loggers/read_back.py'), ...args]).then(({ stdout }) =>
      read.parse(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')),
    );
  const [all, late] = await Promise.all([run(...stores), run(`tensorboard=${join(home, 'late')}`)]);
  const { stdout } = await promisify(execFile)(python, [join(REPOSITORY, 'loggers/read_back.py'), `traces=${url}`]);
  ({ traces } = readTraces.parse(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')));
  mlflowRuns = (await runsOfMlflow(url)).filter(({ info }) => info.run_name !== 'calls');
  const histories = mlflowRuns.map(
    async (each) => [each.info.run_name, await historyOf(url, each.info.run_id)] as const,
  );
  return { ...all, late: late['tensorboard'] ?? {}, mlflow: Object.fromEntries(await Promise.all(histories)) };
}

const pair = z.object({ key: z.string(), value: z.unknown() });
const mlflowRun = z.object({
  info: z.object({ run_id: z.string(), run_name: z.string(), status: z.string() }),
  data: z.object({ params: z.array(pair), metrics: z.array(pair).default([]) }),
});

async function runsOfMlflow(url: string) {
  const api = `${url}/api/2.0/mlflow`;
  const experiment = await (await fetch(`${api}/experiments/get-by-name?experiment_name=trialgate`)).json();
  const { experiment_id: id } = z
    .object({ experiment: z.object({ experiment_id: z.string() }) })
    .parse(experiment).experiment;
  const reply = await fetch(`${api}/runs/search`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ experiment_ids: [id] }),
  });
  return z.object({ runs: z.array(mlflowRun) }).parse(await reply.json()).runs;
}

/** Returns the entries of a run in mlflow, in the order in which the server has them. */
async function historyOf(url: string, runId: string): Promise<Entries> {
  const metrics = z.object({
    metrics: z.array(z.object({ value: z.number(), step: z.number(), timestamp: z.number() })).default([]),
  });
  const kinds = [
    ['eval', 'val/evaluation'],
    ['train', 'actor/grad_norm'],
  ] as const;
  const rows = kinds.map(async ([kind, key]) => {
    const query = new URLSearchParams({ run_id: runId, metric_key: key });
    const reply = await fetch(`${url}/api/2.0/mlflow/metrics/get-history?${query}`);
    return metrics
      .parse(await reply.json())
      .metrics.map(({ step, value, timestamp }) => ({ step, kind, value, timestamp }));
  });
  return (await Promise.all(rows))
    .flat()
    .toSorted((a, b) => a.timestamp - b.timestamp)
    .map(({ step, kind, value }) => [step, kind, value]);
}

test.for(NAMES)(
  '%s has each step once and in order, after its program was killed, after the server was away, and after a redo',
  (name, { skip }) => {
    requireLibraries(skip);
    expect(found[name]).toEqual(EXPECTED);
  },
);

test('a late logger has the steps of the newest branch, each once and in order', ({ skip }) => {
  requireLibraries(skip);
  expect(found['late']).toEqual({ 'first@4': EXPECTED['first@4'] });
});

test('mlflow shows the run file, how a run ended, and names without @', ({ skip }) => {
  requireLibraries(skip);
  expect(Object.fromEntries(mlflowRuns.map(({ info }) => [info.run_name, info.status]))).toEqual({
    first: 'KILLED',
    'first@4': 'FINISHED',
  });
  for (const { data } of mlflowRuns) {
    expect(data.params).toContainEqual({ key: 'optim.clip_grad', value: '1' });
    expect(data.metrics).toContainEqual(expect.objectContaining({ key: 'val/pass_at_1', value: 0.5 }));
  }
});

test('mlflow has each ended trial once as a trace of the run that it belongs to', ({ skip }) => {
  requireLibraries(skip);
  const ofFirst = traces.filter(({ trial }) => trial.startsWith('first-'));
  const expected = [
    ['first', ['eval@0', '0.1', '1.1', '2.1']],
    ['first@4', ['2.2']],
  ] as const;
  expect(ofFirst.map(({ run, trial }) => `${run}: ${trial}`).toSorted()).toEqual(
    expected
      .flatMap(([name, entries]) => entries.flatMap((each) => [0, 1].map((i) => `${name}: first-${each}/0-${i}`)))
      .concat(['first@4: first-1.1/0-2', 'first@4: first-2.2/0-2'])
      .toSorted(),
  );
});

test('a trace in mlflow has the calls and tool calls of a trial, its tokens and its rewards', ({ skip }) => {
  requireLibraries(skip);
  expect(traces.filter(({ trial }) => trial.startsWith('calls-'))).toEqual([
    {
      trial: 'calls-0.1/0-0',
      run: 'calls',
      outcome: 'scored',
      rewards: { reward: 1 },
      tokens: 4,
      spans: [
        ['AGENT', 't', 'OK'],
        ['CHAT_MODEL', 'call 1', 'OK'],
        ['CHAT_MODEL', 'call 2', 'ERROR'],
        ['TOOL', 'ls', 'OK'],
      ],
    },
  ]);
});

test('traces are written after a server has failed to tell its version or to take one, and a request that fails is made once', async ({
  skip,
}) => {
  requireLibraries(skip);
  const faults = new Map([['/version', 500]]);
  const seen: string[] = [];
  const behind = typeof mlflow === 'string' ? '' : mlflow.url;
  const front = createServer(async (request, response) => {
    const { method = 'GET', url = '/', headers } = request;
    const { pathname } = new URL(url, behind);
    seen.push(pathname);
    const body = method === 'GET' ? null : await buffer(request);
    const fault = faults.get(pathname);
    if (fault !== undefined) return void response.writeHead(fault).end();
    const kept = ['content-type', 'x-mlflow-experiment-id'].flatMap((name) => {
      const value = headers[name];
      return typeof value === 'string' ? [[name, value] as const] : [];
    });
    const reply = await fetch(new URL(url, behind), { method, headers: Object.fromEntries(kept), body });
    response.writeHead(reply.status, { 'content-type': reply.headers.get('content-type') ?? 'text/plain' });
    response.end(Buffer.from(await reply.arrayBuffer()));
  });
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const { port } = z.object({ port: z.number() }).parse(front.address());
  const logger = { name: 'mlflow', tracking_uri: `http://127.0.0.1:${port}` } as const;
  const program = await LoggerProcess.start(destinationOf(home, logger), signal);
  try {
    await program.open(await readRunLog(store.db, 'calls'), 'calls');
    const trace = await readTrialTrace(store.db, 'calls-0.1/0-1', async (label) => label);
    if (!trace) throw new Error('the trial is not in the record');
    const noVersion = expect.stringContaining('could not identify MLflow server version');
    expect(await program.trace('0.1', trace)).toEqual({ reason: noVersion, isRefused: false });
    faults.clear();
    faults.set('/v1/traces', 502);
    expect(await program.trace('0.1', trace)).toEqual({ reason: expect.stringContaining('502'), isRefused: false });
    expect(seen.filter((path) => path === '/v1/traces')).toHaveLength(1);
    faults.set('/v1/traces', 413);
    expect(await program.trace('0.1', trace)).toEqual({ reason: expect.stringContaining('413'), isRefused: true });
    faults.clear();
    expect(await program.trace('0.1', trace)).toBeNull();
    expect(await program.traced('0.1')).toEqual(new Set(['calls-0.1/0-0', 'calls-0.1/0-1']));
    expect(await program.traced('0')).toEqual(new Set());
  } finally {
    await program.end();
    front.close();
  }
});

test('an activity worker writes the runs whose files name loggers, and `trialgate export-metrics` writes them to others later', async ({
  skip,
}) => {
  requireLibraries(skip);
  await withTemporaryStack(
    async ({ plan }) => {
      const folder = plan.folders.home;
      const db = openDatabase(plan.databaseUrl);
      try {
        const run = await new LoggedRun(db, 'second').begin(['csv']);
        await run.trainStep(0);
        await until(() => readLoggerState(folder, 'second', destinationOf(folder, { name: 'csv' }))?.written === 1);
        await run.end();
        const args = [INSTALLS.main, 'export-metrics', 'second', '--to', 'tensorboard', '--home', folder];
        const { stdout } = await promisify(execFile)(INSTALLS.node, [...args, '--database-url', plan.databaseUrl]);
        expect(stdout).toContain('tensorboard: has 1 entries of second');
      } finally {
        await db.$client.end();
      }
    },
    signal,
    ['postgres', 'temporal', 'gateway', 'activity-worker'],
    { TRIALGATE_ENGINES: 'http://127.0.0.1:9' },
  );
});
