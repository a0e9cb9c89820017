/**
 * Attacks by request bodies (findings A4 and A9): one trial sends bodies that are expensive to parse, hash or store, while eight other trials
 * make 200 small calls a second. The table shows the others' calls just before each attack, while the same attack goes to another gateway on this
 * machine, and while it goes to their own; the gateway's memory; and what was stored. The attack on the other gateway is the control: it costs the
 * machine's processors, the engine and PostgreSQL the same, but the others' event loop nothing.
 * "longest turn" is the longest turn of the gateway's event loop, in processor time, so other work of the machine does not count.
 * The first line shows what the machine alone costs: the same figures while two processes only compute, one only when its processor is idle, like the attacker,
 * and one at the priority of the gateway's thread for large requests. Where that alone doubles the others' p99, this machine has too few processors to show more.
 * The gateway withstood an attack if the others' p99 stayed below twice that of the quiet time or of the control, the gateway lived, each answer was
 * one that the table expects, and the trial stored no more than its bound. Each attack has two gateway processes with databases of their own.
 *
 *   node bench/attacks/bodies.ts --seconds 10
 *
 * --repository DIR attacks the gateway of another checkout, whose packages are installed. --only TEXT runs only attacks whose name contains TEXT. --flags=FLAGS gives
 * the gateway's Node more flags.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { REPOSITORY } from '../../core/repository.ts';
import { shutdownSignal } from '../../cli/signals.ts';
import { table } from '../../cli/show/table.ts';
import { startEngine } from '../gateway/parts/engine.ts';
import { BENCH_ADMIN_KEY, startGateway, type BenchGateway } from '../gateway/parts/gateway.ts';
import { startPostgres } from '../gateway/parts/postgres.ts';
import { peakMiB, resetPeaks, treeOf } from '../gateway/parts/usage.ts';
import { optionsOf } from '../options.ts';
import type { Attack as Sent, AttackResult } from './bodies-attacker.ts';
import type { BodyKind } from './bodies-made.ts';
import { reportAttacks, type Attack, type Severity } from './report.ts';

type Case = {
  id: string;
  severity: Severity;
  body: BodyKind;
  /** The number of connections that send at the same time. */
  streams?: number;
  /** The maximum number of requests. */
  most?: number;
  expected: number[];
  budgets?: Record<string, number>;
  /** The limit of what the attacker's trial may add to the table of calls. */
  mostStoredMiB?: number;
};

const CASES: Case[] = [
  { id: 'A4', severity: 'critical', body: '40 MiB of {} in an unknown list', expected: [413] },
  { id: 'A4', severity: 'critical', body: '30 MiB of {} in an unknown list', expected: [413] },
  { id: 'A4', severity: 'critical', body: '8 MiB of {} in an unknown list', expected: [413] },
  { id: 'A4', severity: 'critical', body: '{} in an unknown list, as many as may be', expected: [200] },
  { id: 'A4', severity: 'critical', body: '{} as messages, as many as may be', expected: [400] },
  { id: 'A4', severity: 'critical', body: 'messages, as many as may be', expected: [200] },
  { id: 'A4', severity: 'critical', body: 'messages, as many as stay with the other calls', expected: [200] },
  { id: 'A4', severity: 'critical', body: '8 MiB of nested lists', expected: [400, 413] },
  { id: 'A4', severity: 'critical', body: 'nested objects, 499 levels, many times', expected: [200] },
  { id: 'A4', severity: 'critical', body: 'a text of 30 MiB', expected: [200, 429] },
  { id: 'A4', severity: 'critical', body: 'a text of 30 MiB', streams: 8, expected: [200, 429, 503] },
  { id: 'A4', severity: 'critical', body: 'a text of 250 KiB', expected: [200, 429] },
  { id: 'A4', severity: 'critical', body: '30 MiB of escaped quotes', expected: [200, 429] },
  { id: 'A4', severity: 'critical', body: '240,000 keys', expected: [200] },
  { id: 'A4', severity: 'critical', body: '__proto__ and constructor, 200,000 times', expected: [200, 413] },
  { id: 'A4', severity: 'critical', body: 'a prompt of 450,000 numbers', expected: [200, 400] },
  { id: 'A4', severity: 'critical', body: 'gzip of 30 MiB of {}', expected: [413] },
  { id: 'A4', severity: 'critical', body: 'gzip of 200 MiB of blanks', expected: [413] },
  { id: 'A9', severity: 'high', body: '16 MiB that the engine refuses', most: 30, expected: [400], mostStoredMiB: 0.1 },
  {
    id: 'A9',
    severity: 'high',
    body: '16 MiB that are answered',
    expected: [200, 429],
    budgets: { bytes: 64 * 2 ** 20 },
    mostStoredMiB: 64,
  },
];

const CALLERS = 8;
/** The time between the starts of one caller's calls. Callers without pauses would keep all processors of a small machine busy, and the figures would show how it shares them. */
const PACE_MS = 40;
const MOST_MEMORY_MIB = 3072;
/** The engine and PostgreSQL finish the work of the control's attack within this time. */
const SETTLE_MS = 2_000;
/** The priorities of the attacker's thread and of the gateway's for large requests. */
const PRIORITIES = [
  ['chrt', '--idle', '0'],
  ['nice', '-n', '10'],
];
const { seconds, repository, only, flags } = optionsOf(import.meta.url, {
  seconds: 10,
  repository: REPOSITORY,
  only: '',
  flags: '',
});
const signal = shutdownSignal();

type Times = { count: number; p99: number; max: number; failed: number; turn: number };
type OpenTrial = { url: string; key: string; id: string };

await using stack = new AsyncDisposableStack();
const postgres = stack.use(await startPostgres(signal));
const engine = stack.use(await startEngine(signal));
await engine.set({ tokens: 16, paceMs: 0 });

const folder = mkdtempSync(join(tmpdir(), 'trialgate-attack-bodies-'));
stack.defer(() => rmSync(folder, { recursive: true }));
const turnsFile = join(folder, 'turns');
const nodeArgs = [
  '--import',
  new URL(`./longest-turns.mjs?file=${encodeURIComponent(turnsFile)}`, import.meta.url).href,
  ...flags.split(' ').filter(Boolean),
];

if (!only) console.log(await whileOthersCompute());
const attacks: Attack[] = [];
const rows: string[][] = [];
const ratios: { toQuiet: number; toControl: number }[] = [];
for (const each of CASES.filter(({ body }) => body.includes(only))) {
  signal.throwIfAborted();
  await using gateway = await startGateway({ postgres, engine: engine.url, repository, nodeArgs, signal });
  await using control = await startGateway({ postgres, engine: engine.url, repository, signal });
  const { held, note, row, times } = await attack(gateway, control, each);
  ratios.push(times);
  const name = `${each.body}${each.streams ? `, ${each.streams} at once` : ''}`;
  attacks.push({ id: each.id, severity: each.severity, attack: name, tried: 1, held: held ? 1 : 0, note });
  rows.push([each.id, name, ...row]);
  console.error(`${held ? 'held' : 'FAILED'}: ${name}; ${note}; ${row.join(', ')}`);
}
if (repository !== REPOSITORY)
  console.log(
    `the gateway of commit ${execFileSync('git', ['-C', repository, 'rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim()}\n`,
  );
console.log(
  table(
    [
      '',
      'body',
      'answers',
      'quiet p99 ms',
      'control',
      'attacked',
      'max ms',
      'longest turn ms',
      "others' calls",
      'memory MiB',
      'stored KiB',
    ],
    rows,
  ),
);
const below = (which: 'toQuiet' | 'toControl') =>
  `${ratios.filter((each) => each[which] < 2).length} of ${ratios.length}`;
console.log(
  `\nthe others' p99 stayed below twice that of the quiet time in ${below('toQuiet')}, below twice that of the control in ${below('toControl')}\n`,
);
process.exitCode = reportAttacks(attacks);

type Outcome = { held: boolean; note: string; row: string[]; times: { toQuiet: number; toControl: number } };

async function attack(gateway: BenchGateway, control: BenchGateway, attackCase: Case): Promise<Outcome> {
  const { expected, mostStoredMiB } = attackCase;
  await warmedUp(control);
  const others = await warmedUp(gateway);
  const quiet = await measure(others, seconds * 1000);
  const beside = await measureDuring(others, await open(control.url, 'attacker', attackCase.budgets), attackCase);
  await measure(others, SETTLE_MS);
  resetPeaks(treeOf(gateway.pid));
  const attacker = await open(gateway.url, 'attacker', attackCase.budgets);
  const {
    times: attacked,
    isAlive,
    memory,
    sent: { statuses, broken, lastAnswer },
  } = await measureDuring(others, attacker, attackCase, gateway);
  const times = { toQuiet: attacked.p99 / quiet.p99, toControl: attacked.p99 / beside.times.p99 };
  const stored = isAlive ? (await gateway.storedOf(attacker.id)) / 1024 : Number.NaN;
  const faults = [
    ...(isAlive ? [] : ['the gateway is gone']),
    ...(attacked.failed > 0 ? [`${attacked.failed} calls of others failed`] : []),
    ...(Math.min(times.toQuiet, times.toControl) < 2
      ? []
      : [
          `others' p99 is ${times.toQuiet.toFixed(1)} times the quiet one, ${times.toControl.toFixed(1)} times the control's`,
        ]),
    ...(memory < MOST_MEMORY_MIB ? [] : [`it took ${Math.round(memory)} MiB`]),
    ...(mostStoredMiB === undefined || stored <= mostStoredMiB * 1024 ? [] : [`${Math.round(stored)} KiB are stored`]),
    ...(Object.keys(statuses).every((status) => expected.includes(Number(status))) && Object.keys(statuses).length > 0
      ? []
      : [`answers: ${JSON.stringify(statuses)} ${lastAnswer}`]),
  ];
  const answers = [
    ...Object.entries(statuses).map(([status, count]) => `${count} × ${status}`),
    ...(broken ? [`${broken} broken`] : []),
  ].join(', ');
  const row = [
    answers,
    quiet.p99.toFixed(1),
    beside.times.p99.toFixed(1),
    attacked.p99.toFixed(1),
    attacked.max.toFixed(0),
    `${quiet.turn.toFixed(1)} → ${attacked.turn.toFixed(1)}`,
    `${quiet.count} → ${attacked.count}`,
    memory.toFixed(0),
    stored.toFixed(0),
  ];
  return { held: faults.length === 0, note: faults.join('; '), row, times };
}

type During = { times: Times; sent: AttackResult; isAlive: boolean; memory: number };

/** Measures the others' calls while the attacker sends. `gateway`: the one that is attacked, where its life and memory are of interest. */
async function measureDuring(
  others: readonly OpenTrial[],
  { url, key }: OpenTrial,
  { body, streams = 1, most = Infinity }: Case,
  gateway?: BenchGateway,
): Promise<During> {
  const sending: Sent = { url, key, kind: body, streams, seconds, most };
  const worker = new Worker(new URL('./bodies-attacker.ts', import.meta.url), { workerData: sending });
  const ended = once(worker, 'message') as Promise<[AttackResult]>;
  const times = await measure(others, seconds * 1000);
  const memory = gateway ? peakMiB(treeOf(gateway.pid)) : 0;
  const isAlive =
    gateway !== undefined &&
    (await fetch(`${gateway.url}/health`, { signal: AbortSignal.timeout(5_000) }).then(
      (reply) => reply.ok,
      () => false,
    ));
  const [sent] = await Promise.race([ended, lateResult()]);
  await worker.terminate();
  return { times, sent, isAlive, memory };
}

/** Opens the others' trials. No measurement may include one-time costs, such as caches, V8's optimization or the start of the thread for large requests. */
async function warmedUp({ url }: BenchGateway): Promise<OpenTrial[]> {
  const others = await Promise.all(Array.from({ length: CALLERS }, (_, i) => open(url, `other-${i}`)));
  await measure(others, 3_000, 0);
  const large = JSON.stringify({ messages: [{ role: 'user', content: 'word '.repeat(80_000) }] });
  for (const trial of others) await post(trial, large, new Agent());
  await measure(others, 2_000);
  return others;
}

async function whileOthersCompute(): Promise<string> {
  await using gateway = await startGateway({ postgres, engine: engine.url, repository, nodeArgs, signal });
  const others = await warmedUp(gateway);
  const quiet = await measure(others, seconds * 1000);
  const computing = PRIORITIES.map(([program = '', ...options]) =>
    spawn(program, [...options, process.execPath, '-e', 'for (;;);'], { stdio: 'ignore' }),
  );
  try {
    const busy = await measure(others, seconds * 1000);
    return `without an attack, while two processes compute: others' p99 ${quiet.p99.toFixed(1)} → ${busy.p99.toFixed(1)} ms, max ${busy.max.toFixed(0)} ms\n`;
  } finally {
    for (const each of computing) each.kill('SIGKILL');
  }
}

/** Returns the attacker's result when it does not end in time, for example because the gateway has died. */
async function lateResult(): Promise<[AttackResult]> {
  await new Promise((resolve) => setTimeout(resolve, 60_000).unref());
  return [{ statuses: {}, broken: 0, lastAnswer: 'the attacker had no answer for a minute' }];
}

async function open(url: string, id: string, budgets?: Record<string, number>): Promise<OpenTrial> {
  const reply = await fetch(`${url}/sessions/${id}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${BENCH_ADMIN_KEY}` },
    body: JSON.stringify({ budgets: budgets ?? {} }),
  });
  // An older gateway has no byte budget.
  if (reply.status === 400 && budgets) return open(url, id);
  const { api_key: key } = (await reply.json()) as { api_key: string };
  return { id, key, url: `${url}/${id}/v1/chat/completions` };
}

/** Makes small calls for each trial at a fixed pace, and measures their times. */
async function measure(trials: readonly OpenTrial[], ms: number, paceMs = PACE_MS): Promise<Times> {
  const end = Date.now() + ms;
  const took: number[] = [];
  let failed = 0;
  const agent = new Agent({ keepAlive: true });
  const start = performance.now();
  const since = Date.now();
  await Promise.all(
    trials.map(async (trial, at) => {
      for (let i = 0; Date.now() < end; i++) {
        const due = start + (i + at / trials.length) * paceMs;
        if (due > performance.now()) await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
        const began = performance.now();
        const body = JSON.stringify({ messages: [{ role: 'user', content: `question ${i} of ${trial.id}` }] });
        const status = await post(trial, body, agent).catch(() => 0);
        if (status !== 200) {
          failed += 1;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        took.push(performance.now() - began);
      }
    }),
  );
  agent.destroy();
  took.sort((a, b) => a - b);
  return {
    count: took.length,
    p99: took[Math.ceil(0.99 * took.length) - 1] ?? Infinity,
    max: took.at(-1) ?? Infinity,
    failed,
    turn: longestTurn(since),
  };
}

/** Returns the longest turn since `since`. The first line after it is left out, because it may count earlier work. */
function longestTurn(since: number): number {
  const lines = readFileSync(turnsFile, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(' ').map(Number));
  return Math.max(
    0,
    ...lines
      .filter(([at = 0]) => at > since)
      .slice(1)
      .map(([, turn = 0]) => turn),
  );
}

function post({ url, key }: OpenTrial, body: string, agent: Agent): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request(
      url,
      {
        method: 'POST',
        agent,
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        },
      },
      (reply) => {
        reply.resume();
        reply.on('end', () => resolve(reply.statusCode ?? 0));
        reply.on('error', reject);
      },
    );
    asking.on('error', reject);
    asking.setTimeout(60_000, () => asking.destroy());
    asking.end(body);
  });
}
