/**
 * Measures the seconds from a clean clone to the end of the quickstart, in total and by part.
 *
 *   node bench/quickstart.ts --iterations 3
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { REPOSITORY } from '../core/repository.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { iterations } = optionsOf(import.meta.url, { iterations: 3 });
const signal = shutdownSignal();
const clone = mkdtempSync(join(tmpdir(), 'trialgate-quickstart-'));
chmodSync(clone, 0o755);
const lines: string[] = [];
const start = performance.now();
const elapsed = () => `${((performance.now() - start) / 1000).toFixed(1).padStart(6)} s`;
const print = (line: string): void => {
  lines.push(line);
  console.log(line);
};

try {
  execFileSync('git', ['clone', '-q', REPOSITORY, clone]);
  const child = spawn('npm', ['run', 'quickstart', '--', '--iterations', String(iterations)], {
    cwd: clone,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' },
  });
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on('line', (line) => print(`${elapsed()}  ${line.replaceAll(clone, '.')}`));
  }
  signal.addEventListener('abort', () => child.kill('SIGINT'));
  const [code] = await once(child, 'close');
  print(`${elapsed()}  end, exit code ${code}`);
  process.exitCode = typeof code === 'number' ? code : 1;
} finally {
  rmSync(clone, { recursive: true, force: true });
}
if (process.exitCode === 0)
  writeFileSync(
    join(REPOSITORY, 'bench/results/quickstart.txt'),
    `${JSON.stringify(provenance(), null, 2)}\n\n${lines.join('\n')}\n`,
  );
