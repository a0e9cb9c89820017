import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { installClients } from '../clients/install.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { installWithProgress, type InstallOptions } from '../../cli/install/install.ts';
import { deviceOf } from '../../cli/supervisor/device.ts';
import { ON_SHARED_CORES } from '../support/harness/temporary-deployment.ts';
import { checkCounts, pytestCounts, vitestCounts, type Counts } from './counts.ts';
import { endLeftBehind } from './left-behind.ts';

type Part = 'checks' | 'fast' | 'real';
type Suite = {
  name: string;
  part: Part;
  command: (report: string) => string[];
  counts: (report: string, exitCode: number) => Counts;
};

const bin = (name: string): string => path.join(REPOSITORY, 'node_modules/.bin', name);

/** Suites that need only the npm packages. They run while the rest is installed. */
const MEANWHILE: Suite[] = [
  { name: 'types', part: 'checks', command: () => [bin('tsc'), '--noEmit'], counts: checkCounts },
  { name: 'lint', part: 'checks', command: () => [bin('oxlint'), '--deny-warnings'], counts: checkCounts },
  { name: 'workerd', part: 'fast', command: vitest('workerd'), counts: vitestCounts },
];

/** Lanes run side by side, because tests wait more than they compute; one after the other on a GPU, which holds one engine at a time. Fast suites come first. */
const LANES: Suite[][] = [
  [
    { name: 'fast', part: 'fast', command: vitest('fast'), counts: vitestCounts },
    { name: 'real', part: 'real', command: vitest('real'), counts: vitestCounts },
  ],
  [
    { name: 'ruff', part: 'checks', command: () => [INSTALLS.python, '-m', 'ruff', 'check', '--no-cache', 'gpu-workers', 'bench'], counts: checkCounts },
    { name: 'licences', part: 'checks', command: () => [INSTALLS.node, INSTALLS.main, 'check', 'npm-licences', 'python-licences'], counts: checkCounts },
    { name: 'python', part: 'fast', command: pytest('not real'), counts: pytestCounts },
    { name: 'engines', part: 'real', command: pytest('real'), counts: pytestCounts },
  ],
];

function vitest(project: string) {
  return (report: string) => [
    bin('vitest'), 'run', '--project', project, '--reporter=default', '--reporter=json', `--outputFile.json=${report}`,
  ];
}

function pytest(marker: string) {
  return (report: string) => [
    INSTALLS.python, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'gpu-workers', '-m', marker, `--junitxml=${report}`,
  ];
}

/** Installs what tests need, runs every suite and prints `N passed, N failed, N skipped` at the end. Returns the exit code. */
export async function runTests(options: InstallOptions & { only?: Part }, signal: AbortSignal): Promise<number> {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-t-'));
  // PostgreSQL has its data in this folder and runs as another user when we are root.
  chmodSync(folder, 0o755);
  const failed = new AbortController();
  const stop = AbortSignal.any([signal, failed.signal]);
  const total: Counts = { passed: 0, failed: 0, skipped: 0 };
  const inTurn = async (suites: Suite[]): Promise<void> => {
    for (const suite of suites) {
      if (stop.aborted || (options.only && suite.part !== options.only)) continue;
      const report = path.join(folder, `${suite.name}.report`);
      const start = Date.now();
      console.log(`== ${suite.name}`);
      const counts = suite.counts(report, await run(suite, { report, folder }, stop));
      for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += counts[key];
      console.log(`== ${suite.name}: ${line(counts)} in ${Math.round((Date.now() - start) / 1000)} s`);
    }
  };
  try {
    // Registries are slow, so clients are installed meanwhile. A client that cannot be installed fails its own test.
    const clients = async (how: 'npm' | 'pip') => !options.only || options.only === 'real' ? installClients(how, stop) : undefined;
    const meanwhile = Promise.all([inTurn(MEANWHILE), clients('npm')]);
    await installWithProgress(options, signal).catch(async (error: unknown) => {
      failed.abort();
      await meanwhile;
      throw error;
    });
    await Promise.all([meanwhile, clients('pip'), ...(deviceOf(options.device) === 'cpu' ? LANES : [LANES.flat()]).map(inTurn)]);
  } finally {
    await endLeftBehind(folder);
    rmSync(folder, { recursive: true, force: true });
  }
  signal.throwIfAborted();
  console.log(`\n${line(total)}`);
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
}

const line = ({ passed, failed, skipped }: Counts): string =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;

/** Runs a suite and returns its exit code. Each printed line begins with the suite's name. */
function run({ name, command }: Suite, { report, folder }: { report: string; folder: string }, signal: AbortSignal): Promise<number> {
  const env = {
    ...process.env,
    PYTHONPATH: INSTALLS.gpuWorkers,
    PYTHONDONTWRITEBYTECODE: '1',
    TMPDIR: folder,
    ...ON_SHARED_CORES,
    PATH: `${path.dirname(INSTALLS.node)}:${process.env['PATH']}`,
  };
  const [file = '', ...args] = command(report);
  const child = spawn(file, args, { cwd: REPOSITORY, stdio: ['ignore', 'pipe', 'pipe'], env });
  for (const stream of [child.stdout, child.stderr]) createInterface(stream).on('line', (text) => console.log(`${name.padEnd(7)} | ${text}`));
  signal.addEventListener('abort', () => child.kill('SIGINT'), { once: true });
  return new Promise((resolve) => {
    child.on('error', () => resolve(1));
    child.on('close', (code) => resolve(code ?? 1));
  });
}
