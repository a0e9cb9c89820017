import { spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { INSTALLS } from '../../cli/folders.ts';
import { endGroup, identify } from '../../cli/supervisor/processes.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { sleep } from '../../core/sleep.ts';
import { ON_SHARED_CORES } from '../support/harness/temporary-deployment.ts';
import { EventReader, EVENTS_FILE } from './events.ts';
import { endLeftBehind } from './left-behind.ts';
import { SuiteOutcome, type Counts } from './outcome.ts';
import { commandOf, type Suite } from './suites.ts';

export type SuiteRun = {
  /** The temporary folder of this suite alone. What it left behind is found by it. */
  folder: string;
  /** Gets all that the suite prints. */
  log: string;
  env?: Record<string, string>;
  /** Runs only these files, alone. */
  again?: readonly string[];
  signal: AbortSignal;
  onFile?: (file: string, counts: Counts, seconds: number) => void;
  onStart?: (outcome: SuiteOutcome) => void;
  /** Time for a suite that has said all to end by itself. */
  endsWithinMs?: number;
};

const LINES_OF_A_LOG = 40;

/**
 * Runs a suite until it ends, its signal aborts, or it hangs after its last test. Then ends what is left of it. `left` are the commands
 * of the processes that its tests left behind.
 */
export async function runSuite(
  suite: Suite,
  { folder, log, env: more = {}, again, signal, onFile, onStart, endsWithinMs = 60_000 }: SuiteRun,
): Promise<{ outcome: SuiteOutcome; left: string[] }> {
  mkdirSync(folder, { recursive: true });
  const events = `${folder}.events`;
  rmSync(events, { force: true });
  const outcome = new SuiteOutcome();
  onStart?.(outcome);
  const output = openSync(log, again ? 'a' : 'w');
  const [file = '', ...args] = commandOf(suite, again);
  const env = {
    ...process.env,
    ...more,
    // pytest finds the plugin that writes the events here.
    PYTHONPATH: `${INSTALLS.gpuWorkers}:${import.meta.dirname}`,
    PYTHONDONTWRITEBYTECODE: '1',
    TMPDIR: folder,
    [EVENTS_FILE]: events,
    ...ON_SHARED_CORES,
    PATH: `${path.dirname(INSTALLS.node)}:${process.env['PATH']}`,
  };
  const child = spawn(file, args, { cwd: REPOSITORY, stdio: ['ignore', output, output], env, detached: true });
  closeSync(output);
  const leader = identify(child.pid ?? 0);
  const ended: { how?: string } = {};
  child.on('error', (error) => (ended.how = `it cannot be started: ${error.message}`));
  child.on('exit', (code, by) => (ended.how = by ? `it was ended by ${by}` : `exit code ${code}`));

  const reader = new EventReader(events);
  const read = (): void => {
    for (const event of reader.read()) {
      const whole = outcome.add(event);
      if (whole) onFile?.(whole.file, whole.counts, whole.seconds);
    }
  };
  let doneAt = Infinity;
  while (ended.how === undefined && !signal.aborted && Date.now() - doneAt < endsWithinMs) {
    await sleep(100);
    read();
    if (outcome.done) doneAt = Math.min(doneAt, Date.now());
  }
  const hangs = ended.how === undefined && !signal.aborted;
  await endGroup(leader, 'SIGINT', 10_000);
  read();
  if (signal.aborted) outcome.cut(reasonOf(signal));
  else if (hangs) outcome.fail('', suite.name, `all tests ended, but the suite did not end within ${endsWithinMs} ms`);
  else conclude(suite, outcome, ended.how ?? '', log);
  const left = await endLeftBehind(folder);
  return { outcome, left };
}

/** Adds what the exit says beyond the events. */
function conclude(suite: Suite, outcome: SuiteOutcome, exit: string, log: string): void {
  const isGood = exit === 'exit code 0';
  if (suite.kind === 'check') {
    if (isGood) outcome.tests.push({ file: 'checks', name: suite.name, result: 'passed', seconds: 0 });
    else outcome.fail('checks', suite.name, endOf(log));
    return;
  }
  for (const { file, name } of outcome.running()) outcome.fail(file, name, `the suite ended while it ran: ${exit}`);
  if (outcome.tests.length === 0) outcome.fail('', suite.name, `no test ran (${exit}): ${endOf(log)}`);
  else if (!isGood && !outcome.tests.some(({ result }) => result === 'failed'))
    outcome.fail('', suite.name, `no test failed, but the suite did (${exit}): ${endOf(log)}`);
}

const endOf = (log: string): string =>
  stripVTControlCharacters(readFileSync(log, 'utf8')).trimEnd().split('\n').slice(-LINES_OF_A_LOG).join('\n');

const reasonOf = ({ reason }: AbortSignal): string => (reason instanceof Error ? reason.message : String(reason));
