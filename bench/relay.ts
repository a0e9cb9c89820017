/**
 * Measures what relay workers cost. It compares one stream, and many paced streams, through relay workers with the same streams of the same
 * engine by its URL, in turn. Then it cuts the workers' sockets under load. All parts are processes of their own on this machine, and PostgreSQL has fsync on.
 * Delay: from the engine's write of a token to the client. First: time to the first token, less what the engine itself took.
 * It exits with 1 when a reply that an agent saw end is not recorded, or one is recorded twice.
 *
 *   node bench/relay.ts --streams 1000 --workers 4 --repeats 3 --cuts 100
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { shutdownSignal } from '../cli/signals.ts';
import { REPOSITORY } from '../core/repository.ts';
import { cutUnderLoad } from '../tests/support/scenarios/relay-cuts.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';
import { measureStreams } from './relay/streams.ts';
import { cutsTable, streamsTable } from './relay/tables.ts';

const { streams, workers, repeats, cuts, agents, tokens, pace } = optionsOf(import.meta.url, {
  streams: 1000,
  workers: 4,
  repeats: 3,
  cuts: 100,
  agents: 24,
  tokens: 64,
  pace: 100,
});

const signal = shutdownSignal();
const loads = [
  { name: 'one stream', streams: 1, tokens, paceMs: 20, rounds: 10 },
  { name: `${streams} streams`, streams, tokens, paceMs: pace, rounds: 1 },
];
const measured = await measureStreams({ loads, workers, repeats, signal });
const counts = await cutUnderLoad({ cuts, workers, agents, signal });
const faults = [...counts.lost, ...counts.twice, ...counts.unsampled, ...counts.odd];
const text = [
  streamsTable(measured),
  ...new Set(measured.flatMap(({ way, reasons }) => reasons.map((reason) => `${way}: ${reason}`))),
  '',
  cutsTable(cuts, counts),
  ...faults.slice(0, 20),
].join('\n');
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
const raw = measured.map((each) => JSON.stringify(each)).join('\n');
writeFileSync(
  join(REPOSITORY, 'bench/results/relay.txt'),
  `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n\n${raw}\n`,
);
const isWrong = measured.some(({ lost, twice }) => lost + twice > 0) || faults.length > 0;
process.exitCode = isWrong ? 1 : 0;
