/**
 * Measures the cost of a sandbox's own network: the start of a command that ends at once, and an agent's calls to a gateway that answers
 * at once. Each round tries all networks in turn, so that other load on this machine affects all of them: `host` (the baseline), `none`
 * (only the namespace, as for a verifier), `gateway` (namespace, relay and forwarder, as for an agent).
 *
 *   node bench/sandbox.ts --rounds 30 --calls 300
 *
 * Prints a table: milliseconds of a start, of a call on a kept connection and on a new one, of a streamed reply of 64 parts, and calls a second of 16 threads.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { isolation } from '../activities/sandbox/isolation.ts';
import type { Network } from '../activities/sandbox/network.ts';
import { sandboxWith, shell, temporaryHome } from '../tests/support/harness/sandbox-fixtures.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { rounds, calls } = optionsOf(import.meta.url, { rounds: 30, calls: 300 });
const KINDS = ['host', 'none', 'gateway'] as const;
const PARTS = 64;
const THREADS = 16;

/** The program times its own calls, so that Python's start is not included. */
const CLIENT = `
import http.client, json, sys, threading, time
host, port, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "x" * 1000}]})
def ask(connection, path):
    connection.request("POST", path, body)
    return connection.getresponse().read()
def per_call(times, one):
    start = time.perf_counter()
    for _ in range(times): one()
    return (time.perf_counter() - start) / times * 1000
kept = http.client.HTTPConnection(host, port)
def fresh():
    connection = http.client.HTTPConnection(host, port)
    ask(connection, "/call")
    connection.close()
ask(kept, "/call")
result = {"kept": per_call(calls, lambda: ask(kept, "/call")), "new": per_call(calls, fresh), "stream": per_call(max(1, calls // 10), lambda: ask(kept, "/stream"))}
def work():
    own = http.client.HTTPConnection(host, port)
    for _ in range(calls): ask(own, "/call")
threads = [threading.Thread(target=work) for _ in range(${THREADS})]
start = time.perf_counter()
[t.start() for t in threads]; [t.join() for t in threads]
result["rate"] = ${THREADS} * calls / (time.perf_counter() - start)
print(json.dumps(result))
`;

type Calls = { kept: number; new: number; stream: number; rate: number };
const isCalls = (value: unknown): value is Calls => typeof value === 'object' && value !== null && 'rate' in value;

const signal = shutdownSignal();
const found = await isolation();
if (found.kind !== 'bubblewrap')
  throw new Error(`this measures bubblewrap, which does not work here: ${found.trouble}`);

const server = createServer(async (request, response) => {
  await text(request);
  response.setHeader('content-type', 'application/json');
  if (request.url !== '/stream')
    return response.end(JSON.stringify({ choices: [{ message: { content: 'y'.repeat(500) } }] }));
  for (let part = 0; part < PARTS; part++) {
    response.write(`data: ${part}\n\n`);
    await turn();
  }
  response.end();
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const address = server.address();
const port = typeof address === 'object' ? (address?.port ?? 0) : 0;

await using folder = await temporaryHome();
const sandbox = await sandboxWith(folder.home, {});
const networks: Record<(typeof KINDS)[number], Network> = {
  host: { kind: 'host' },
  none: { kind: 'none' },
  gateway: { kind: 'gateway', url: `http://127.0.0.1:${port}`, folder: sandbox.root },
};
const starts: Record<string, number[]> = {};
const asked: Record<string, Calls[]> = {};
for (let round = 0; round <= rounds && !signal.aborted; round++) {
  for (const kind of round % 2 ? KINDS.toReversed() : KINDS) {
    const start = performance.now();
    await shell(found, sandbox, 'true', { network: networks[kind], signal });
    const ms = performance.now() - start;
    // The first round warms up.
    if (round > 0) (starts[kind] ??= []).push(ms);
    if (kind === 'none') continue;
    const script = `exec python3 -I -S -c '${CLIENT}' 127.0.0.1 ${port} ${calls}`;
    const { stdout, stderr } = await shell(found, sandbox, script, {
      network: networks[kind],
      signal,
      seconds: 300,
      memoryMb: 2048,
    });
    const result: unknown = stdout ? JSON.parse(stdout) : null;
    if (!isCalls(result)) throw new Error(`the client printed: ${stderr}`);
    if (round > 0) (asked[kind] ??= []).push(result);
  }
}
server.close().closeAllConnections();

const at = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(share * values.length) - 1] ?? NaN;
const cell = (values: readonly number[] | undefined, digits: number): string[] =>
  values ? [at(values, 0.5).toFixed(digits), at(values, 0.95).toFixed(digits)] : ['–', '–'];
const rowOf = (kind: (typeof KINDS)[number]): string[] => {
  const of = (key: keyof Calls): number[] | undefined => asked[kind]?.map((each) => each[key]);
  const rate = of('rate');
  return [
    kind,
    ...cell(starts[kind], 1),
    ...cell(of('kept'), 2),
    ...cell(of('new'), 2),
    ...cell(of('stream'), 2),
    rate ? at(rate, 0.5).toFixed(0) : '–',
  ];
};
console.log(JSON.stringify({ ...provenance(), rounds: starts['host']?.length ?? 0, calls }, null, 2));
const columns = ['start', 'kept connection', 'new connection', `stream of ${PARTS}`].flatMap((name) => [
  `${name} p50 ms`,
  'p95',
]);
console.log(`\n${table(['network', ...columns, `calls/s of ${THREADS} (p50)`], KINDS.map(rowOf))}`);
