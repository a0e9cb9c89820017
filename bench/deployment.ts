import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { withDeployment, type Connected } from '../cli/run/connect.ts';
import type { Stack } from '../cli/supervisor/stack.ts';
import { deviceOf } from '../cli/supervisor/device.ts';
import { untilSignalled } from '../cli/signals.ts';
import { withTemporaryStack } from '../cli/testing/temporary-deployment.ts';

/** A whole deployment in a folder of its own, on free ports, while `body` measures; stopped by a signal too. */
export async function withStack<T>(body: (connected: Connected, stack: Stack, signal: AbortSignal) => Promise<T>): Promise<T> {
  const signal = untilSignalled();
  return withTemporaryStack((stack) => withDeployment(stack.plan.config, (connected) => body(connected, stack, signal)), signal);
}

type Provenance = { command: string; machine: string; date: string; commit: string };
let begun: Provenance | undefined;

/** What a result file begins with: the command, the machine, and the date and commit of when it was first asked. */
export function provenance(): Provenance {
  const [cpu] = cpus();
  return (begun ??= {
    command: `node ${process.argv.slice(1).map((each) => each.replace(`${process.cwd()}/`, '')).join(' ')}`,
    machine: `${cpus().length} cores (${cpu?.model.trim()}), ${deviceOf('auto') === 'cpu' ? 'no GPU' : 'a GPU'}`,
    date: new Date().toISOString(),
    commit: commitOf(),
  });
}

/** With `-dirty` where the code is not what was committed. */
function commitOf(): string {
  const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();
  return git('rev-parse', '--short', 'HEAD') + (git('status', '--porcelain', '--', ':/', ':!/bench/results', ':!*.md') === '' ? '' : '-dirty');
}
