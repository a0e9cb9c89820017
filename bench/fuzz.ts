/**
 * Fuzzes a gateway with malformed requests of agents and malformed replies of the engine, then runs schemathesis on its API document.
 * Counts unexpected failures, leaks to other trials, and memory that is not freed. PostgreSQL is real.
 *
 *   node bench/fuzz.ts --rounds 700 --seed 7
 *
 * --runtime workerd tests a Worker instead of the gateway on Node. `memory grew` is the growth of the heap after a garbage collection on
 * Node. workerd has no such command, so there it is the growth of all resident memory.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { report } from '../cli/exit.ts';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { startGateway } from '../gateway/runtimes/node/start-gateway.ts';
import { bundleWorker } from '../tests/support/harness/bundle-worker.ts';
import { fuzzGateway, type FuzzOptions } from '../tests/support/scenarios/fuzz/fuzz-gateway.ts';
import { startWorkerGateway } from '../tests/support/harness/worker-gateway.ts';
import { TrialgateError } from '../core/errors.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { fuzzDocument } from './fuzz/schemathesis.ts';
import { residentMiB } from './gateway/parts/usage.ts';

const options = optionsOf(import.meta.url, {
  rounds: 700,
  seed: Date.now() % 1_000_000,
  examples: 50,
  runtime: 'node',
});
const { seed, runtime } = options;
const signal = shutdownSignal();
console.log(`seed ${seed}`);
/** The growth in bytes that a process without leaks may show. workerd collects garbage at any time, so it may show more. */
const NOISE: Record<string, number> = { node: 48 * 2 ** 20, workerd: 192 * 2 ** 20 };

await using stack = new AsyncDisposableStack();
const runtimes: Record<string, () => Promise<FuzzOptions['start']>> = {
  node: async () => startGateway,
  workerd: async () => {
    const bundle = await bundleWorker();
    stack.defer(bundle.remove);
    return async (asked) => {
      const gateway = await startWorkerGateway(bundle, asked);
      return { ...gateway, inUse: () => residentMiB(gateway.pid ?? 0) * 2 ** 20 };
    };
  },
};
const open = runtimes[runtime];
if (!open) process.exit(report(new TrialgateError('bad_input', `--runtime is node or workerd, not ${runtime}`)));
const start = await open();
const { rounds, faults, statuses, growth, traffic } = await fuzzGateway({
  seed,
  rounds: options.rounds,
  start,
  signal,
});
const document = await fuzzDocument({ seed, examples: options.examples, start, signal });
const text = [
  ...Object.entries(provenance()).map(([name, value]) => `${name}: ${value}`),
  `seed: ${seed}`,
  '',
  table(
    ['calls', 'answered 200', '400', 'else', 'faults', 'bodies, MiB', 'memory grew, MiB'],
    [
      [
        rounds,
        statuses[200] ?? 0,
        statuses[400] ?? 0,
        rounds - (statuses[200] ?? 0) - (statuses[400] ?? 0),
        faults.length,
        Math.round(traffic / 2 ** 20),
        Math.round(growth / 2 ** 20),
      ].map(String),
    ],
  ),
  ...faults.slice(0, 20),
  '',
  document.text.slice(document.text.indexOf('Schemathesis v')),
]
  .join('\n')
  .replaceAll(`${REPOSITORY}/`, '');
console.log(text);
const folder = join(REPOSITORY, 'bench/results');
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, runtime === 'node' ? 'fuzz.txt' : `fuzz-${runtime}.txt`), `${text}\n`);
await stack.disposeAsync();
// After thousands of requests that were cut off, Node can spin for ever when it frees its handles (nodejs/node#47748 reports the same). `exit` frees none.
process.exit(faults.length > 0 || document.faults > 0 || growth > Math.max(NOISE[runtime] ?? 0, traffic / 2) ? 1 : 0);
