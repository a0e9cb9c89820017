/**
 * Measures the seconds from a clean clone to the end of the quickstart, in total and by part. Further `--runs` follow in the same clone, the last
 * `--loaded` of them beside two processes that compute all the time; a table lists how each ended.
 *
 *   node bench/quickstart.ts --iterations 3
 *   node bench/quickstart.ts --iterations 1 --runs 5 --loaded 2
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { REPOSITORY } from '../core/repository.ts';
import { table } from '../cli/show/table.ts';
import { shutdownSignal } from '../cli/signals.ts';
import { provenance } from './deployment.ts';
import { optionsOf } from './options.ts';

const { iterations, runs, loaded } = optionsOf(import.meta.url, { iterations: 3, runs: 1, loaded: 0 });
const signal = shutdownSignal();
const clone = mkdtempSync(join(tmpdir(), 'trialgate-quickstart-'));
chmodSync(clone, 0o755);

type Ended = { code: number; seconds: number; lines: string[] };

/** Runs the quickstart once. Each line of its output begins with the seconds since its start. */
async function quickstart(): Promise<Ended> {
  const lines: string[] = [];
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  const print = (line: string): void => {
    lines.push(`${seconds().toFixed(1).padStart(6)} s  ${line}`);
    console.log(lines.at(-1));
  };
  const child = spawn('npm', ['run', 'quickstart', '--', '--iterations', String(iterations)], {
    cwd: clone,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' },
  });
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on('line', (line) => print(line.replaceAll(clone, '.')));
  const interrupt = (): void => void child.kill('SIGINT');
  signal.addEventListener('abort', interrupt);
  const [code] = await once(child, 'close');
  signal.removeEventListener('abort', interrupt);
  print(`end, exit code ${code}`);
  return { code: typeof code === 'number' ? code : 1, seconds: seconds(), lines };
}

/** Runs `body` beside two processes that compute all the time. */
async function besideTwo<T>(body: () => Promise<T>): Promise<T> {
  const computing = [0, 1].map(() => spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  try {
    return await body();
  } finally {
    for (const child of computing) child.kill();
  }
}

const ended: (Ended & { beside: string })[] = [];
try {
  execFileSync('git', ['clone', '-q', REPOSITORY, clone]);
  for (let run = 0; run < runs && !signal.aborted; run++) {
    const isLoaded = run >= runs - loaded;
    const beside = isLoaded ? 'two processes that compute' : 'nothing';
    ended.push({ ...(isLoaded ? await besideTwo(quickstart) : await quickstart()), beside });
  }
} finally {
  rmSync(clone, { recursive: true, force: true });
}
const rows = ended.map(({ code, seconds, beside, lines }, index) => [
  String(index + 1),
  beside,
  String(Math.round(seconds)),
  String(code),
  lines.findLast((line) => line.includes('agents and verifiers'))?.replace(/^ *[\d.]+ s {2}/, '') ?? '–',
]);
const summary = table(['run', 'beside', 'seconds', 'exit code', 'the check before the run'], rows);
if (runs > 1) console.log(`\n${summary}`);
process.exitCode = ended.every(({ code }) => code === 0) ? 0 : 1;
const file = runs > 1 ? 'quickstarts.txt' : 'quickstart.txt';
const details = ended.map(({ lines }, index) =>
  runs > 1 ? `run ${index + 1}\n${lines.join('\n')}` : lines.join('\n'),
);
if (ended.length === runs && !signal.aborted && (process.exitCode === 0 || runs > 1))
  writeFileSync(
    join(REPOSITORY, 'bench/results', file),
    [JSON.stringify(provenance(), null, 2), ...(runs > 1 ? [summary] : []), ...details].join('\n\n').concat('\n'),
  );
