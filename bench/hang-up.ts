/**
 * Runs agents that hang up at random moments. Shows how long it takes until the engine's request is cancelled, and how the call is
 * recorded. The gateway is a separate process. The time includes the agent's close and its detection by gateway and engine.
 *
 *   node bench/hang-up.ts --hang-ups 400
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { hangUpAtRandom, type HangUp } from '../tests/support/scenarios/hang-ups.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const LIMIT_MS = 100;
const { 'hang-ups': count, agents } = optionsOf(import.meta.url, { 'hang-ups': 400, agents: 8 });

const hangUps = await hangUpAtRandom({ hangUps: count, agents, signal: shutdownSignal() });

function row(what: string, some: readonly HangUp[]): string[] {
  const ms = some.flatMap((each) => (each.ms === null ? [] : [each.ms])).toSorted((a, b) => a - b);
  const at = (share: number) => ms[Math.ceil(share * ms.length) - 1]?.toFixed(1) ?? '–';
  const ended = (status: HangUp['status']) => `${some.filter((each) => each.status === status).length}`;
  return [
    what,
    `${some.length}`,
    `${ms.length}`,
    at(0.5),
    at(0.99),
    at(1),
    ended('cancelled'),
    ended('completed'),
    ended('failed'),
    ended('absent'),
  ];
}

const places = [...new Set(hangUps.map(({ at }) => at))].toSorted();
const text = table(
  [
    'while the engine was at',
    'hang-ups',
    'requests cut',
    'median ms',
    'p99 ms',
    'max ms',
    'cancelled',
    'completed',
    'failed',
    'absent',
  ],
  [
    ...places.map((place) =>
      row(
        place ?? 'nothing',
        hangUps.filter(({ at }) => at === place),
      ),
    ),
    row('all', hangUps),
  ],
);
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, 'bench/results/hang-up.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
// While the engine works, only the agent's hang-up can end a call.
const isWrong = ({ at, ms, status }: HangUp) =>
  status === 'failed' || (ms ?? 0) > LIMIT_MS || (at !== null && ms !== null && status !== 'cancelled');
process.exitCode = hangUps.some(isWrong) ? 1 : 0;
