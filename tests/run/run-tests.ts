import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { INSTALLS } from '../../cli/folders.ts';
import { installWithProgress, type InstallOptions } from '../../cli/install/install.ts';
import { deviceOf } from '../../cli/supervisor/device.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { installClients } from '../clients/install.ts';
import { machineInWords, requireMachine, thisMachine } from './machine.ts';
import { countsOf, type SuiteOutcome, type TestOutcome } from './outcome.ts';
import { chooseRepeats, type FailedFile } from './repeat.ts';
import { IN_GATE } from '../support/harness/in-gate.ts';
import { runSuite } from './run-suite.ts';
import { ALL_AREAS, FIRST, GATE_AREAS, LAST, SIDE_BY_SIDE, whileInstalling, type Area, type Suite } from './suites.ts';
import { countsLine, fileLine, report, suiteTable, type Flaky, type SuiteResult } from './summary.ts';
import { writeResults } from './write-results.ts';

export type TestOptions = InstallOptions & {
  /** Runs the full set, or the gate. */
  all: boolean;
  only?: readonly Area[];
  limitMinutes: number;
  /** Begins on a machine that has too little, too. */
  anyMachine: boolean;
};

/** The areas that need the installed Python packages, Temporal and the model. */
const INSTALLED: readonly Area[] = ['temporal', 'main-job', 'clients', 'sandboxes', 'runs', 'trainer', 'page'];
/** So often a run says which tests run, when nothing else was said. */
const SILENCE_MS = 60_000;

/**
 * Runs the suites of these areas, those with an engine one after the other, and then once more each file that failed, if that may be an accident.
 * Prints a line a file, at the end each failure whole, a table and `N passed, N failed, N skipped`. Returns the exit code. It always
 * ends: at the limit it ends every suite and says which tests ran.
 */
export async function runTests(options: TestOptions, interrupted: AbortSignal): Promise<number> {
  const { all, limitMinutes, anyMachine, device, only = all ? ALL_AREAS : GATE_AREAS } = options;
  const installs = only.some((area) => INSTALLED.includes(area));
  const machine = thisMachine();
  if (!anyMachine) requireMachine(machine, installs ? 'real' : 'fast');
  const logs = path.join(REPOSITORY, '.trialgate-test/logs');
  mkdirSync(logs, { recursive: true });
  console.log(
    `${only.join(', ')} on ${machineInWords(machine)}, load ${machine.load.toFixed(1)}; at most ${limitMinutes} minutes; full logs: ${logs}`,
  );

  const start = Date.now();
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new Error(atLimit(limitMinutes))), limitMinutes * 60_000);
  const failed = new AbortController();
  const signal = AbortSignal.any([interrupted, limit.signal, failed.signal]);
  // Suites have folders in this one. Sockets are in them, whose paths may have 107 bytes.
  const folder = mkdtempSync(path.join(tmpdir(), 'tg-'));
  // PostgreSQL has its data in this folder and runs as another user when we are root.
  chmodSync(folder, 0o755);
  const run = new TestRun({ folder, logs, signal, all, hasPython: installs || existsSync(INSTALLS.python), only });
  try {
    // Registries are slow, so clients are installed meanwhile. A client that cannot be installed fails its own test.
    const clients = async (how: 'npm' | 'pip') => (only.includes('clients') ? installClients(how, signal) : undefined);
    const meanwhile = Promise.all([run.inTurn(whileInstalling(all)), clients('npm')]);
    if (installs)
      await installWithProgress(options, signal).catch(async (error: unknown) => {
        failed.abort(error);
        await meanwhile;
        throw limit.signal.aborted ? limit.signal.reason : error;
      });
    else if (!run.hasPython) console.log(WITHOUT_PYTHON);
    // A GPU holds one engine at a time, and its machines have processors enough for one suite after the other.
    const lanes = deviceOf(device) === 'cpu' ? SIDE_BY_SIDE : [SIDE_BY_SIDE.flat()];
    await Promise.all([meanwhile, clients('pip'), run.inTurn(FIRST)]);
    await Promise.all(lanes.map((lane) => run.inTurn(lane)));
    await run.inTurn(LAST);
    await run.repeatFailed();
  } finally {
    clearTimeout(timer);
    rmSync(folder, { recursive: true, force: true });
  }
  interrupted.throwIfAborted();
  const { text, counts, isGood } = report(run);
  console.log(text);
  if (limit.signal.aborted) console.log(`\n${atLimit(limitMinutes)}`);
  if (all && !options.only)
    writeResults({ machine, minutes: (Date.now() - start) / 60_000, table: suiteTable(run.results), counts });
  console.log(`\n${countsLine(counts)}`);
  return isGood && !limit.signal.aborted ? 0 : 1;
}

const atLimit = (minutes: number): string =>
  `the limit of ${minutes} minutes for all tests was reached (--limit sets another)`;

const WITHOUT_PYTHON =
  'WARNING: the Python packages are not installed (`npx trialgate install` does it), so ruff, the tests in Python and those that start Python are left out';

type Place = {
  folder: string;
  logs: string;
  signal: AbortSignal;
  all: boolean;
  hasPython: boolean;
  only: readonly Area[];
};

/** One run of suites, and what they said. */
export class TestRun {
  readonly results: SuiteResult[] = [];
  readonly flaky: Flaky[] = [];
  readonly refused: string[] = [];
  readonly left: string[] = [];
  readonly hasPython: boolean;
  readonly #place: Place;
  readonly #suites = new Map<string, Suite>();
  readonly #running = new Map<string, SuiteOutcome>();
  #saidAt = Date.now();

  constructor(place: Place) {
    this.#place = place;
    this.hasPython = place.hasPython;
  }

  /** Runs these suites one after the other. A suite that the limit or an interruption leaves out is left out. */
  async inTurn(suites: readonly Suite[]): Promise<void> {
    for (const suite of suites) {
      const isWanted = this.#place.only.includes(suite.area) && (this.hasPython || !suite.inPython);
      if (this.#place.signal.aborted || !isWanted) continue;
      this.#suites.set(suite.name, suite);
      const start = Date.now();
      this.#say(`== ${suite.name}`);
      const { outcome, left } = await this.#run(suite);
      const seconds = (Date.now() - start) / 1000;
      const counts = countsOf(outcome.tests);
      this.results.push({ area: suite.area, suite: suite.name, tests: outcome.tests, seconds });
      this.left.push(...left.map((command) => `${suite.name}: ${command}`));
      this.#say(`== ${suite.name}: ${countsLine(counts)} in ${Math.round(seconds)} s`);
    }
  }

  /** Runs each file that failed once more, alone, if that may be an accident. A test that then passes is flaky. */
  async repeatFailed(): Promise<void> {
    const { signal } = this.#place;
    if (signal.aborted) return;
    const { repeat, refused } = chooseRepeats(this.results.flatMap(failedFiles));
    this.refused.push(...refused);
    for (const { suite: name, file, tests } of repeat) {
      const suite = this.#suites.get(name);
      if (!suite || this.#place.signal.aborted) continue;
      this.#say(`== ${name}: ${file} failed and is run once more, alone`);
      const { outcome } = await this.#run(suite, [file]);
      const again = countsOf(outcome.tests);
      this.#say(`== ${name}: ${file} again: ${countsLine(again)}`);
      if (again.failed > 0 || again.passed === 0) continue;
      for (const test of tests) {
        this.flaky.push({ file, name: test.name, failure: test.failure ?? '' });
        test.result = 'passed';
      }
    }
  }

  async #run(suite: Suite, again?: readonly string[]): ReturnType<typeof runSuite> {
    const { folder, logs, signal, all, hasPython } = this.#place;
    const saying = setInterval(() => this.#sayRunning(), 5_000);
    try {
      return await runSuite(suite, {
        folder: path.join(folder, again ? `${suite.name}-2` : suite.name),
        log: path.join(logs, `${suite.name}.log`),
        env: { ...(!hasPython && { TRIALGATE_TEST_WITHOUT_PYTHON: 'true' }), ...(!all && { [IN_GATE]: 'true' }) },
        ...(again && { again }),
        signal,
        onStart: (outcome) => this.#running.set(suite.name, outcome),
        onFile: (file, counts, seconds) => this.#say(fileLine(suite.name, file, counts, seconds)),
      });
    } finally {
      clearInterval(saying);
      this.#running.delete(suite.name);
    }
  }

  #say(line: string): void {
    this.#saidAt = Date.now();
    console.log(line);
  }

  #sayRunning(): void {
    if (Date.now() - this.#saidAt < SILENCE_MS) return;
    const lines = [...this.#running].flatMap(([suite, outcome]) =>
      outcome
        .running()
        .map(({ file, name, since }) => `${suite} … ${Math.round((Date.now() - since) / 1000)} s: ${file}: ${name}`),
    );
    this.#say(lines.join('\n') || `${[...this.#running.keys()].join(', ')} … no test runs at the moment`);
  }
}

/** Returns the files of a suite that have a failed test. */
function failedFiles({ suite, tests }: SuiteResult): FailedFile[] {
  const failed = Map.groupBy(
    tests.filter(({ result }) => result === 'failed'),
    ({ file }: TestOutcome) => file,
  );
  return [...failed].map(([file, ofFile]) => ({ suite, file, tests: ofFile }));
}
