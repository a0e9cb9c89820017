import { execFileSync } from 'node:child_process';
import { cpus } from 'node:os';
import { withDeployment, type DeploymentClients } from '../cli/run/connect.ts';
import type { Stack } from '../cli/supervisor/stack.ts';
import { deviceOf } from '../cli/supervisor/device.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { withTemporaryStack } from '../tests/support/harness/temporary-deployment.ts';

/** Runs `body` with a complete deployment in a temporary folder on free ports. A signal stops it, too. */
export async function withStack<T>(
  body: (connected: DeploymentClients, stack: Stack, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const signal = shutdownSignal();
  return withTemporaryStack(
    (stack) => withDeployment(stack.plan.config, (connected) => body(connected, stack, signal)),
    signal,
  );
}

type Provenance = { command: string; machine: string; date: string; commit: string };
let begun: Provenance | undefined;

/** Returns the head of a result file: the command, the machine, and the date and commit at the first call. */
export function provenance(): Provenance {
  const [cpu] = cpus();
  return (begun ??= {
    command: `node ${process.argv
      .slice(1)
      .map((each) => each.replace(`${process.cwd()}/`, ''))
      .join(' ')}`,
    machine: `${cpus().length} cores (${cpu?.model.trim()}), ${deviceOf('auto') === 'cpu' ? 'no GPU' : 'a GPU'}`,
    date: new Date().toISOString(),
    commit: commitOf(),
  });
}

/** Returns the commit, with `-dirty` when the code differs from it. */
function commitOf(): string {
  const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();
  return (
    git('rev-parse', '--short', 'HEAD') +
    (git('status', '--porcelain', '--', ':/', ':!/bench/results', ':!*.md') === '' ? '' : '-dirty')
  );
}
