/**
 * Agents that hang up at random moments: how long until the engine sees its request cancelled, and how the call is recorded.
 * The gateway is a process of its own; the time includes the agent's closing, the gateway's noticing and the engine's noticing.
 *
 *   node bench/hang-up.ts --hang-ups 400
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { REPOSITORY } from '../cli/folders.ts';
import { table } from '../cli/show/table.ts';
import { hangUpAtRandom, type HangUp } from '../gateway/testing/hang-ups.ts';
import { provenance } from './deployment.ts';

const LIMIT_MS = 100;
const { values } = parseArgs({ options: { 'hang-ups': { type: 'string', default: '400' }, agents: { type: 'string', default: '8' } } });
const interrupted = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => interrupted.abort(new Error('interrupted')));

const hangUps = await hangUpAtRandom({ hangUps: Number(values['hang-ups']), agents: Number(values.agents), signal: interrupted.signal });

function row(what: string, some: readonly HangUp[]): string[] {
  const ms = some.flatMap((each) => (each.ms === null ? [] : [each.ms])).toSorted((a, b) => a - b);
  const at = (share: number) => ms[Math.ceil(share * ms.length) - 1]?.toFixed(1) ?? '–';
  const count = (status: HangUp['status']) => `${some.filter((each) => each.status === status).length}`;
  return [what, `${some.length}`, `${ms.length}`, at(0.5), at(0.99), at(1), count('cancelled'), count('completed'), count('failed'), count('absent')];
}

const places = [...new Set(hangUps.map(({ at }) => at))].toSorted();
const text = table(
  ['while the engine was at', 'hang-ups', 'requests cut', 'median ms', 'p99 ms', 'max ms', 'cancelled', 'completed', 'failed', 'absent'],
  [...places.map((place) => row(place ?? 'nothing', hangUps.filter(({ at }) => at === place))), row('all', hangUps)],
);
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, 'bench/results/hang-up.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
// While the engine is at work, nothing else than the agent's leaving can end a call.
const isWrong = ({ at, ms, status }: HangUp) => status === 'failed' || (ms ?? 0) > LIMIT_MS || (at !== null && ms !== null && status !== 'cancelled');
process.exitCode = hangUps.some(isWrong) ? 1 : 0;
