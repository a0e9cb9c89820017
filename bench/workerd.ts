/**
 * Compares the gateway in workerd with the gateway on Node: the Worker's size, the time until each serves, and the cost of a call, with
 * the same engine, PostgreSQL (fsync on) and client. This is workerd on one machine, not Cloudflare's edge: each request opens a
 * connection to PostgreSQL, where Hyperdrive would keep a pool. `GET /health` shows the cost without a connection.
 *
 *   node bench/workerd.ts --seconds 5 --starts 10
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { bundleWorker } from '../tests/support/harness/bundle-worker.ts';
import { GatewayProcess } from '../tests/support/harness/gateway-process.ts';
import { trialOverHttp } from '../tests/support/harness/trial-over-http.ts';
import { startWorkerd, type Bundle } from '../tests/support/harness/workerd.ts';
import { openDatabase } from '../store/database.ts';
import { migrate } from '../store/queries/migrate.ts';
import { registerReplicas } from '../store/queries/register-replicas.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { startEngine } from './gateway/parts/engine.ts';
import { startPostgres } from './gateway/parts/postgres.ts';

type Target = { url: string; close: () => Promise<void> };
type Start = () => Promise<Target>;

const options = optionsOf(import.meta.url, { seconds: 5, starts: 10 });
const signal = shutdownSignal();

const ADMIN_KEY = 'the admin key';
const SECRET = 'a secret of sixteen characters';
const CONNECTIONS = [1, 16];
const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? NaN;

/** Returns the milliseconds from the start of a process to its first answer. */
async function startUps(start: Start): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < options.starts; i++) {
    signal.throwIfAborted();
    const began = performance.now();
    const target = await start();
    await (await fetch(`${target.url}/health`, { signal })).text();
    times.push(performance.now() - began);
    await target.close();
  }
  return times;
}

type Ask = (lane: number) => Promise<Response>;

/** Makes calls on these connections, each again after its reply. The first second is not counted. */
async function load(ask: Ask, connections: number): Promise<{ rate: number; p50: number }> {
  const from = performance.now() + 1_000;
  const until = from + options.seconds * 1000;
  const times: number[] = [];
  await Promise.all(
    Array.from({ length: connections }, async (_, lane) => {
      while (performance.now() < until) {
        signal.throwIfAborted();
        const began = performance.now();
        const reply = await ask(lane);
        const text = await reply.text();
        if (reply.status !== 200) throw new Error(`${reply.status}: ${text.slice(0, 200)}`);
        if (began >= from) times.push(performance.now() - began);
      }
    }),
  );
  return { rate: times.length / options.seconds, p50: median(times) };
}

let asked = 0;
const bodyOf = (stream: boolean) => ({
  model: 'policy',
  max_tokens: 64,
  stream,
  messages: [{ role: 'user', content: `the ${asked++}. question` }],
});

async function throughGateway({ url }: Target, stream: boolean, connections: number) {
  const trials = await Promise.all(
    Array.from({ length: connections }, () => trialOverHttp({ url, adminKey: ADMIN_KEY }, `bench-${asked++}`)),
  );
  return load((lane) => trials[lane]?.chat(bodyOf(stream)) ?? Promise.reject(new Error('no trial')), connections);
}

function row(what: string, asks: string, connections: number, { rate, p50 }: { rate: number; p50: number }): string[] {
  return [what, asks, `${connections}`, rate.toFixed(0), p50.toFixed(2)];
}

const [whole, small] = [await bundleWorker(), await bundleWorker('--minify')];
const results: string[] = [
  `Worker: ${whole.gzipBytes} compressed, ${small.gzipBytes} minified and compressed (\`wrangler deploy --dry-run\`)`,
];
await using postgres = await startPostgres(signal);
await using engine = await startEngine(signal);
await using database = await postgres.database('workerd');
await migrate(database.url);
const db = openDatabase(database.url, { maxConnections: 1 });
await registerReplicas(db, [engine.url]);
await db.$client.end();

const starts: Record<string, Start> = {
  Node: async () => {
    const gateway = await new GatewayProcess({
      engines: [engine.url],
      databaseUrl: database.url,
      adminKey: ADMIN_KEY,
      secret: SECRET,
    }).start();
    return { url: gateway.url, close: () => gateway.kill() };
  },
  workerd: () => startWith(whole),
};

function startWith(bundle: Bundle): Promise<Target> {
  const variables = { TRIALGATE_SECRET: SECRET, TRIALGATE_ADMIN_KEY: ADMIN_KEY, TRIALGATE_ENGINES: engine.url };
  return startWorkerd({ bundle, variables, databaseUrl: database.url, onLog: () => {} });
}

const started: string[][] = [];
for (const [name, start] of Object.entries(starts)) {
  const each = await startUps(start);
  started.push([name, median(each).toFixed(0), Math.max(...each).toFixed(0)]);
}
results.push(table(['first answer after the start of', 'median ms', 'max ms'], started));

const rows: string[][] = [];
for (const [name, start] of Object.entries(starts)) {
  const target = await start();
  rows.push(row(name, 'GET /health', 1, await load(() => fetch(`${target.url}/health`), 1)));
  await target.close();
}
for (const stream of [false, true]) {
  const kind = stream ? 'stream' : 'plain call';
  for (const connections of CONNECTIONS) {
    const headers = { 'content-type': 'application/json' };
    const direct = await load(
      () =>
        fetch(`${engine.url}/v1/chat/completions`, {
          method: 'POST',
          headers,
          body: JSON.stringify({ ...bodyOf(stream), return_token_ids: true, logprobs: true }),
        }),
      connections,
    );
    rows.push(row('the engine alone', kind, connections, direct));
    for (const [name, start] of Object.entries(starts)) {
      const target = await start();
      rows.push(row(name, kind, connections, await throughGateway(target, stream, connections)));
      await target.close();
    }
  }
}
results.push(
  'In workerd each call opens a PostgreSQL connection of its own: there is no Hyperdrive before it here. GET /health opens none.',
);
results.push(table(['through', 'asks', 'connections', 'a second', 'median ms'], rows));
await Promise.all([whole.remove(), small.remove()]);

const text = results.join('\n\n');
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, 'bench/results/workerd.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
