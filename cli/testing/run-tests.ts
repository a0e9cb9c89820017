import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { INSTALLS, REPOSITORY } from '../folders.ts';
import { installWithProgress, type InstallOptions } from '../install/install.ts';
import { checkCounts, pytestCounts, vitestCounts, type Counts } from './counts.ts';

type Part = 'checks' | 'fast' | 'real';
type Suite = {
  name: string;
  part: Part;
  command: (report: string) => string[];
  counts: (report: string, exitCode: number) => Counts;
};

const bin = (name: string): string => path.join(REPOSITORY, 'node_modules/.bin', name);

/** Fast ones first. */
const SUITES: Suite[] = [
  { name: 'types', part: 'checks', command: () => [bin('tsc'), '--noEmit'], counts: checkCounts },
  { name: 'lint', part: 'checks', command: () => [bin('oxlint'), '--deny-warnings'], counts: checkCounts },
  { name: 'ruff', part: 'checks', command: () => [INSTALLS.python, '-m', 'ruff', 'check', '--no-cache', 'gpu-workers', 'bench'], counts: checkCounts },
  { name: 'fast', part: 'fast', command: vitest('fast'), counts: vitestCounts },
  { name: 'fast in workerd', part: 'fast', command: vitest('workerd'), counts: vitestCounts },
  { name: 'python', part: 'fast', command: pytest('not real'), counts: pytestCounts },
  { name: 'real', part: 'real', command: vitest('real'), counts: vitestCounts },
  { name: 'python with engines', part: 'real', command: pytest('real'), counts: pytestCounts },
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

/** Installs what tests need, runs every suite, ends with a line `N passed, N failed, N skipped`. Returns the exit code. */
export async function runTests(options: InstallOptions & { only?: Part }, signal: AbortSignal): Promise<number> {
  await installWithProgress(options, signal);
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-tests-'));
  const total: Counts = { passed: 0, failed: 0, skipped: 0 };
  try {
    for (const [position, suite] of SUITES.entries()) {
      if (signal.aborted || (options.only && suite.part !== options.only)) continue;
      const report = path.join(folder, `report-${position}`);
      const start = Date.now();
      console.log(`\n== ${suite.name}`);
      const counts = suite.counts(report, await run(suite.command(report), signal));
      for (const key of ['passed', 'failed', 'skipped'] as const) total[key] += counts[key];
      console.log(`== ${suite.name}: ${line(counts)} in ${Math.round((Date.now() - start) / 1000)} s`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  signal.throwIfAborted();
  console.log(`\n${line(total)}`);
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
}

const line = ({ passed, failed, skipped }: Counts): string =>
  `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;

function run([file = '', ...args]: string[], signal: AbortSignal): Promise<number> {
  const env = {
    ...process.env,
    PYTHONPATH: INSTALLS.gpuWorkers,
    PYTHONDONTWRITEBYTECODE: '1',
    PATH: `${path.dirname(INSTALLS.node)}:${process.env['PATH']}`,
  };
  const child = spawn(file, args, { cwd: REPOSITORY, stdio: ['ignore', 'inherit', 'inherit'], env });
  signal.addEventListener('abort', () => child.kill('SIGINT'), { once: true });
  return new Promise((resolve) => {
    child.on('error', () => resolve(1));
    child.on('exit', (code) => resolve(code ?? 1));
  });
}
