/**
 * Compares ways to place agents' calls on engines, in a simulation: hit rate of the prefix caches, time until all sessions have ended, time
 * of a call, preemptions. Trialgate's way is the gateway's own code. The others are vllm-router's policies after its source, and oracles
 * that know what each engine has cached and is about to do. Results go to bench/results/placement.txt and .json. It exits with 4 when
 * trialgate has less than 0.9 of the better oracle anywhere.
 *
 *   node bench/placement.ts --seeds 3
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT } from '../cli/exit.ts';
import { REPOSITORY } from '../core/repository.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { compare, type Row } from './placement/compare.ts';
import { AIM, report, sharesOf } from './placement/report.ts';

const { seeds } = optionsOf(import.meta.url, { seeds: 3 });
const rows: Row[] = [];
for (const row of compare(seeds)) {
  rows.push(row);
  console.error(`${row.scenario}, seed ${row.seed}: ${row.policy}`);
}
const text = report(rows, seeds);
const results = join(REPOSITORY, 'bench/results');
mkdirSync(results, { recursive: true });
writeFileSync(join(results, 'placement.json'), `${JSON.stringify({ ...provenance(), rows }, null, 1)}\n`);
writeFileSync(join(results, 'placement.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
console.log(text);
if (sharesOf(rows).some(({ hit, wall }) => Math.min(hit, wall) < AIM)) process.exitCode = EXIT.failed;
