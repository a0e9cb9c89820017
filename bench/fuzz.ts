/**
 * A gateway whose agents send spoiled requests and whose engine sends spoiled replies, then schemathesis on its API's document:
 * how often something happens that nobody foresaw, reaches another trial, or stays in memory. PostgreSQL is real.
 *
 *   node bench/fuzz.ts --rounds 700 --seed 7
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../cli/folders.ts';
import { untilSignalled } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { fuzzGateway } from '../gateway/testing/fuzz/fuzz-gateway.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { fuzzDocument } from './fuzz/schemathesis.ts';

const options = optionsOf(import.meta.url, { rounds: 700, seed: Date.now() % 1_000_000, examples: 50 });
const { seed } = options;
const signal = untilSignalled();
console.log(`seed ${seed}`);
/** How much the heap of a process that keeps nothing may differ, in bytes: of fewer calls the growth says nothing. */
const NOISE = 48 * 2 ** 20;

const { rounds, faults, statuses, heapGrowth, traffic } = await fuzzGateway({ seed, rounds: options.rounds, signal });
const document = await fuzzDocument({ seed, examples: options.examples, signal });
const text = [
  ...Object.entries(provenance()).map(([name, value]) => `${name}: ${value}`),
  `seed: ${seed}`,
  '',
  table(
    ['calls', 'answered 200', '400', 'else', 'faults', 'bodies, MiB', 'heap grew, MiB'],
    [[rounds, statuses[200] ?? 0, statuses[400] ?? 0, rounds - (statuses[200] ?? 0) - (statuses[400] ?? 0), faults.length, Math.round(traffic / 2 ** 20), Math.round(heapGrowth / 2 ** 20)].map(String)],
  ),
  ...faults.slice(0, 20),
  '',
  document.text.slice(document.text.indexOf('Schemathesis v')),
].join('\n').replaceAll(`${REPOSITORY}/`, '');
console.log(text);
const folder = join(REPOSITORY, 'bench/results');
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, 'fuzz.txt'), `${text}\n`);
process.exitCode = faults.length > 0 || document.faults > 0 || heapGrowth > Math.max(NOISE, traffic / 2) ? 1 : 0;
