import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { resolveConfig } from '../cli/config/resolve.ts';
import { startStack, type Stack } from '../cli/supervisor/stack.ts';
import { withDeployment, type Connected } from '../cli/run/connect.ts';

/** A whole deployment in a folder of its own, on free ports, while `body` measures. */
export async function withStack<T>(body: (connected: Connected, stack: Stack, signal: AbortSignal) => Promise<T>): Promise<T> {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-bench-'));
  chmodSync(home, 0o755);
  const env = { TRIALGATE_HOME: home, TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' };
  const { config } = resolveConfig({ env, cwd: home });
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => controller.abort(new Error('interrupted')));
  const stack = await startStack({ config }, controller.signal);
  try {
    return await withDeployment(config, (connected) => body(connected, stack, controller.signal));
  } finally {
    await stack.stop();
    rmSync(home, { recursive: true, force: true });
  }
}

/** What a result file begins with: the command, the machine, the date, the commit. */
export function provenance(): { command: string; machine: string; date: string; commit: string } {
  const [cpu] = cpus();
  return {
    command: `node ${process.argv.slice(1).map((each) => each.replace(`${process.cwd()}/`, '')).join(' ')}`,
    machine: `${cpus().length} cores (${cpu?.model.trim()}), no GPU`,
    date: new Date().toISOString(),
    commit: execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim(),
  };
}
