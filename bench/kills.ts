/**
 * Kills the gateway repeatedly with SIGKILL while agents make calls, plain and streamed, and retry as SDKs do. Counts replies that an
 * agent received to their end but that are not recorded, and requests that are recorded twice. PostgreSQL and the gateway's process
 * are real; the engines are toys that log what they sampled.
 *
 *   node bench/kills.ts --kills 100
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { table } from '../cli/show/table.ts';
import { killUnderLoad } from '../tests/support/scenarios/kills.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const options = optionsOf(import.meta.url, { kills: 100, agents: 24 });

const start = performance.now();
const { kills, ended, replayed, completed, notClean, sampled, sent, tries, refused, cut, ...faults } =
  await killUnderLoad({
    ...options,
    signal: shutdownSignal(),
    onKill: (kill) => kill % 10 === 0 && console.log(`${kill} kills`),
  });
const seconds = ((performance.now() - start) / 1000).toFixed(0);
const found = Object.entries(faults);
const text = [
  table(
    [
      'kills',
      'agents',
      'requests',
      'cut by a kill',
      'sampled',
      'sent whole',
      'completed',
      'seen end',
      'replayed',
      'seconds',
    ],
    [
      [
        ...[kills, options.agents, tries - refused, cut, sampled, sent, completed, ended, replayed].map(String),
        seconds,
      ],
    ],
  ),
  '',
  table(
    ['lost', 'recorded twice', 'recorded, not sampled', 'odd answers', 'prompts not by the recorded ids'],
    [[...[faults.lost, faults.twice, faults.unsampled, faults.odd].map((each) => `${each.length}`), `${notClean}`]],
  ),
  ...found.flatMap(([what, each]) => each.slice(0, 20).map((one) => `${what}: ${one}`)),
].join('\n');
console.log(text);
mkdirSync(join(REPOSITORY, 'bench/results'), { recursive: true });
writeFileSync(join(REPOSITORY, 'bench/results/kills.txt'), `${JSON.stringify(provenance(), null, 2)}\n\n${text}\n`);
process.exitCode = found.some(([, each]) => each.length > 0) ? 1 : 0;
