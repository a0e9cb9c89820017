import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { installClients } from '../clients/install.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { installWithProgress, type InstallOptions } from '../../cli/install/install.ts';
import { deviceOf } from '../../cli/supervisor/device.ts';
import { ON_SHARED_CORES } from '../support/harness/temporary-deployment.ts';
import { endLeftBehind } from './left-behind.ts';
import { readExitCode, readPytest, readVitest, type Outcome, type ReportedTest } from './reports.ts';
import { countsLine, failedList, slowestTable, sumOf, tiersTable, type SuiteResult } from './summary.ts';
import type { Tier } from './tiers.ts';

type Suite = {
  name: string;
  tier: Tier;
  command: (report: string) => string[];
  read: (report: string, exitCode: number) => Outcome;
  /** True when it needs the installed Python packages. */
  inPython?: boolean;
};

const bin = (name: string): string => path.join(REPOSITORY, 'node_modules/.bin', name);

/** Suites that need only the npm packages. They run while the rest is installed. */
const MEANWHILE: Suite[] = [
  { name: 'types', tier: 'checks', command: () => [bin('tsc'), '--noEmit'], read: readExitCode },
  { name: 'lint', tier: 'checks', command: () => [bin('oxlint'), '--deny-warnings'], read: readExitCode },
  {
    name: 'format',
    tier: 'checks',
    command: () => [bin('prettier'), '--check', '--log-level', 'warn', '.'],
    read: readExitCode,
  },
  { name: 'workerd', tier: 'workerd', command: vitest('workerd'), read: readVitest },
];

/** Lanes run side by side, because tests wait more than they compute; one after the other on a GPU, which holds one engine at a time. Fast suites come first. */
const LANES: Suite[][] = [
  [
    { name: 'fast', tier: 'fast', command: vitest('fast'), read: readVitest },
    { name: 'sglang', tier: 'fast', command: vitest('sglang'), read: readVitest },
    { name: 'temporal', tier: 'temporal', command: vitest('temporal'), read: readVitest },
    { name: 'processes', tier: 'real', command: pytest('processes'), read: readPytest, inPython: true },
  ],
  [
    {
      name: 'ruff',
      tier: 'checks',
      command: () => [INSTALLS.node, INSTALLS.main, 'check', 'ruff', 'ruff-format'],
      read: readExitCode,
      inPython: true,
    },
    {
      name: 'licenses',
      tier: 'checks',
      command: () => [INSTALLS.node, INSTALLS.main, 'check', 'npm-licenses', 'python-licenses'],
      read: readExitCode,
    },
    { name: 'python', tier: 'fast', command: pytest('not real and not processes'), read: readPytest, inPython: true },
    { name: 'real', tier: 'real', command: vitest('real'), read: readVitest },
  ],
];

/** These run in the lane that ends first. */
const LAST: Suite[] = [{ name: 'engines', tier: 'real', command: pytest('real'), read: readPytest, inPython: true }];

function vitest(project: string) {
  return (report: string) => [
    bin('vitest'),
    'run',
    '--project',
    project,
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
  ];
}

function pytest(marker: string) {
  return (report: string) => [
    INSTALLS.python,
    '-m',
    'pytest',
    '-q',
    '-p',
    'no:cacheprovider',
    'gpu-workers',
    '-m',
    marker,
    `--junitxml=${report}`,
  ];
}

/**
 * Runs every suite, or those of `only` these tiers, and prints the tiers, the slowest tests and at the end `N passed, N failed, N skipped`.
 * Installs what is missing if the tier `temporal` or `real` is among them; the others do without. Returns the exit code.
 */
export async function runTests(
  options: InstallOptions & { only?: readonly Tier[] },
  signal: AbortSignal,
): Promise<number> {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-t-'));
  // PostgreSQL has its data in this folder and runs as another user when we are root.
  chmodSync(folder, 0o755);
  const failed = new AbortController();
  const stop = AbortSignal.any([signal, failed.signal]);
  const installs = options.only?.some((tier) => tier === 'temporal' || tier === 'real') ?? true;
  const hasPython = installs || existsSync(INSTALLS.python);
  const results: SuiteResult[] = [];
  const tests: ReportedTest[] = [];
  const inTurn = async (suites: Suite[]): Promise<void> => {
    for (const suite of suites) {
      if (stop.aborted || (options.only && !options.only.includes(suite.tier)) || (suite.inPython && !hasPython))
        continue;
      const report = path.join(folder, `${suite.name}.report`);
      const start = Date.now();
      console.log(`== ${suite.name}`);
      const { counts, tests: timed } = suite.read(
        report,
        await run(suite, { report, folder, env: hasPython ? {} : { TRIALGATE_TEST_WITHOUT_PYTHON: 'true' } }, stop),
      );
      const seconds = (Date.now() - start) / 1000;
      results.push({ tier: suite.tier, suite: suite.name, counts, seconds });
      tests.push(...timed);
      console.log(`== ${suite.name}: ${countsLine(counts)} in ${Math.round(seconds)} s`);
    }
  };
  const last = [...LAST];
  const inLane = async (suites: Suite[]): Promise<void> => {
    await inTurn(suites);
    for (let next = last.shift(); next; next = last.shift()) await inTurn([next]);
  };
  try {
    // Registries are slow, so clients are installed meanwhile. A client that cannot be installed fails its own test.
    const clients = async (how: 'npm' | 'pip') => (installs ? installClients(how, stop) : undefined);
    const meanwhile = Promise.all([inTurn(MEANWHILE), clients('npm')]);
    if (installs) {
      await installWithProgress(options, signal).catch(async (error: unknown) => {
        failed.abort();
        await meanwhile;
        throw error;
      });
    } else if (!hasPython) console.log(WITHOUT_PYTHON);
    await Promise.all([
      meanwhile,
      clients('pip'),
      ...(deviceOf(options.device) === 'cpu' ? LANES : [LANES.flat()]).map(inLane),
    ]);
  } finally {
    await endLeftBehind(folder);
    rmSync(folder, { recursive: true, force: true });
  }
  signal.throwIfAborted();
  const total = sumOf(results.map(({ counts }) => counts));
  console.log(`\n${tiersTable(results)}`);
  if (tests.length > 0) console.log(`\nthe slowest tests:\n${slowestTable(tests)}`);
  const failures = failedList(tests);
  if (failures) console.log(`\nthe tests that failed:\n${failures}`);
  console.log(`\n${countsLine(total)}`);
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
}

const WITHOUT_PYTHON =
  'WARNING: the Python packages are not installed (`npx trialgate install` does it), so ruff, the tests in Python and those that start Python are left out';

/** Runs a suite and returns its exit code. Each printed line begins with the suite's name. */
function run(
  { name, command }: Suite,
  { report, folder, env: more }: { report: string; folder: string; env: Record<string, string> },
  signal: AbortSignal,
): Promise<number> {
  const env = {
    ...process.env,
    ...more,
    PYTHONPATH: INSTALLS.gpuWorkers,
    PYTHONDONTWRITEBYTECODE: '1',
    TMPDIR: folder,
    ...ON_SHARED_CORES,
    PATH: `${path.dirname(INSTALLS.node)}:${process.env['PATH']}`,
  };
  const [file = '', ...args] = command(report);
  const child = spawn(file, args, { cwd: REPOSITORY, stdio: ['ignore', 'pipe', 'pipe'], env });
  for (const stream of [child.stdout, child.stderr])
    createInterface(stream).on('line', (text) => console.log(`${name.padEnd(9)} | ${text}`));
  signal.addEventListener('abort', () => child.kill('SIGINT'), { once: true });
  return new Promise((resolve) => {
    child.on('error', () => resolve(1));
    child.on('close', (code) => resolve(code ?? 1));
  });
}
