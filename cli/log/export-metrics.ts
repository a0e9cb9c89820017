import { resolve } from 'node:path';
import { parse } from 'yaml';
import { readRun } from '../../activities/run/read-run.ts';
import { describeIssues } from '../../core/describe-issues.ts';
import { TrialgateError } from '../../core/errors.ts';
import { LOGGER_NAMES, loggerList, type LoggerSetting } from '../../core/run-config/loggers.ts';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { checkLoggers } from './check-loggers.ts';
import { destinationOf } from './destination.ts';
import { LONGEST_WAIT_MS } from './follow-runs.ts';
import { readRunLog } from './logger-entries.ts';
import { LoggerLocks } from './logger-locks.ts';
import type { LoggerState } from './logger-state.ts';
import { reasonOf, writeLog } from './write-log.ts';

type Options = { runId: string; to?: readonly string[]; follow: boolean };

const POLL_MS = 5_000;

/**
 * Writes a run to loggers, those of its file or the named ones. One that fails does not hold the others up.
 * @throws TrialgateError when a logger cannot be used; the logger's own error otherwise
 */
export async function exportMetrics(
  db: Database,
  home: string,
  { runId, to, follow }: Options,
  signal: AbortSignal,
): Promise<void> {
  const { loggers: own } = await readRun(db, runId);
  const loggers = to === undefined ? own : named(to, own);
  if (loggers.length === 0)
    throw new TrialgateError(
      'bad_input',
      `the file of run ${runId} has no \`loggers\`: name one with --to (${LOGGER_NAMES.join(', ')})`,
    );
  const locks = new LoggerLocks(db);
  try {
    const ends = await Promise.allSettled(
      loggers.map(async (logger) => {
        await checkLoggers([logger]);
        const state = await writeTo(logger, { db, locks, home, runId, follow }, signal);
        console.log(
          state === null
            ? `${logger.name}: a worker or another \`npx trialgate export-metrics\` writes run ${runId} there already`
            : `${logger.name}: has ${state.written} ${logger.name === 'otel' ? 'parts' : 'entries'} of ${state.name}${state.traces > 0 ? ` and ${state.traces} traces` : ''}`,
        );
      }),
    );
    const failures = ends.flatMap((end, index) =>
      end.status === 'rejected' ? [{ name: loggers[index]?.name, reason: end.reason as unknown }] : [],
    );
    for (const { name, reason } of failures.slice(1)) console.error(`${name}: ${reasonOf(reason)}`);
    if (failures[0]) throw failures[0].reason;
  } finally {
    locks.close();
  }
}

type Place = { db: Database; locks: LoggerLocks; home: string; runId: string; follow: boolean };

/** Writes a run to one logger. With `follow` it tries again whatever fails until the run has ended. */
async function writeTo(
  logger: LoggerSetting,
  { follow, ...place }: Place,
  signal: AbortSignal,
): Promise<LoggerState | null> {
  const { db, home, runId } = place;
  let wait = POLL_MS;
  const options = {
    ...place,
    destination: destinationOf(home, logger),
    // A single export writes incomplete evaluations too, although a resumed run would complete them.
    read: () => readRunLog(db, runId, { withIncomplete: !follow }),
    ...(follow ? { follow: { pollMs: POLL_MS, idleMs: () => Number.POSITIVE_INFINITY } } : {}),
    onWritten: () => (wait = POLL_MS),
    report: (line: string) => console.error(line),
  };
  for (;;) {
    try {
      return await writeLog(options, signal);
    } catch (error) {
      const isGone = error instanceof TrialgateError && error.code === 'not_found';
      if (!follow || signal.aborted || isGone) throw error;
      console.error(`${logger.name}: ${reasonOf(error)}; trying again in ${wait / 1000} s`);
      await sleep(wait, signal);
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }
}

/**
 * Returns the loggers that the command line names: `csv`, or `{name: mlflow, tracking_uri: URL}`. A plain name has the settings of the run's
 * file; a relative folder counts from where the command runs.
 */
export function named(to: readonly string[], own: readonly LoggerSetting[]): LoggerSetting[] {
  const asked = to.map((text): unknown => {
    const value = parsed(text);
    return own.find(({ name }) => name === value) ?? value;
  });
  const list = loggerList.safeParse(asked);
  if (list.success)
    return list.data.map((each) => (each.folder === undefined ? each : { ...each, folder: resolve(each.folder) }));
  const [fault] = describeIssues(list.error, loggerList);
  throw new TrialgateError('bad_input', `--to: ${fault?.message ?? 'expected names of loggers'}`);
}

function parsed(text: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    throw new TrialgateError(
      'bad_input',
      `--to ${text}: is neither a name nor YAML: write a name such as csv, or '{name: csv, folder: ./metrics}'`,
      { cause },
    );
  }
}
