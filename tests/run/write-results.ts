import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';
import { machineInWords, type Machine } from './machine.ts';
import type { Counts } from './outcome.ts';
import { countsLine } from './summary.ts';

const FILE = path.join(REPOSITORY, 'bench/results/test-all.txt');

/** Writes the table of a whole run of the full set, with its command, date, machine and commit. */
export function writeResults(run: { machine: Machine; minutes: number; table: string; counts: Counts }): void {
  const lines = [
    'npm run test:all',
    `${new Date().toISOString().slice(0, 10)}, ${machineInWords(run.machine)}, commit ${commit()}`,
    '',
    run.table,
    '',
    `${countsLine(run.counts)} in ${run.minutes.toFixed(0)} minutes`,
  ];
  writeFileSync(FILE, `${lines.join('\n')}\n`);
  console.log(`\nthe table is in ${path.relative(REPOSITORY, FILE)}`);
}

function commit(): string {
  const git = (...args: string[]): string => execFileSync('git', args, { cwd: REPOSITORY, encoding: 'utf8' }).trim();
  try {
    return `${git('rev-parse', '--short', 'HEAD')}${git('status', '--porcelain') === '' ? '' : ' with changes'}`;
  } catch {
    return 'unknown (no git here)';
  }
}
