import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeAtomically } from '../files.ts';
import { homeFolders } from '../folders.ts';
import type { Destination } from './destination.ts';

const loggerState = z.object({
  run: z.string(),
  logger: z.string(),
  /** The digest of where the logger writes. */
  destination: z.string(),
  /** The run's name there: after a redo, that of the newest branch. */
  name: z.string(),
  /** The number of entries that the logger has. */
  written: z.number(),
  /** The number of traces that it has. An earlier release noted none. */
  traces: z.number().default(0),
  /** The start of its failure in ISO 8601, and the reason. People read this; the program reads the logger's own store. */
  failing_since: z.string().nullable(),
  reason: z.string().nullable(),
  /** The end of the run, when everything up to it is written. A run that goes on later has another end. */
  complete: z.string().nullable(),
});
export type LoggerState = z.output<typeof loggerState>;

const folderOf = (home: string): string => join(homeFolders(home).loggers, 'state');
const fileOf = (
  home: string,
  { run, logger, destination }: Pick<LoggerState, 'run' | 'logger' | 'destination'>,
): string => join(folderOf(home), `${run}.${logger}.${destination}.json`);

/** Returns null if there is none, or one that cannot be read. */
export function readLoggerState(home: string, run: string, { logger, digest }: Destination): LoggerState | null {
  return read(fileOf(home, { run, logger, destination: digest }));
}

export function writeLoggerState(home: string, state: LoggerState): void {
  mkdirSync(folderOf(home), { recursive: true });
  writeAtomically(fileOf(home, state), `${JSON.stringify(state)}\n`);
}

type Written = { name: string; written: number; traces: number; endedAt: Date | null; failure: string | null };

/** Notes how many entries and traces a logger has, and if that is all of a run that has ended. `failure` says what it lacks besides them. */
export function noteWritten(
  home: string,
  run: string,
  { logger, digest }: Destination,
  { name, written, traces, endedAt, failure }: Written,
): LoggerState {
  const key = { run, logger, destination: digest };
  const before = read(fileOf(home, key));
  const since = failure === null ? null : (before?.failing_since ?? new Date().toISOString());
  const complete = failure === null ? (endedAt?.toISOString() ?? null) : null;
  const state = { ...key, name, written, traces, failing_since: since, reason: failure, complete };
  if (JSON.stringify(before) !== JSON.stringify(state)) writeLoggerState(home, state);
  return state;
}

/** Notes why a logger fails. Returns true if this failure is another one than the last. */
export function noteFailure(home: string, run: string, { logger, digest }: Destination, reason: string): boolean {
  const key = { run, logger, destination: digest };
  const before = read(fileOf(home, key)) ?? {
    ...key,
    name: run,
    written: 0,
    traces: 0,
    failing_since: null,
    reason: null,
  };
  try {
    writeLoggerState(home, {
      ...before,
      failing_since: before.failing_since ?? new Date().toISOString(),
      reason,
      complete: null,
    });
  } catch {
    // A full disk must not end the tries.
  }
  return before.reason !== reason;
}

/** The rest of the name of a list of spans that were sent, after the run's (`originOf`), as `to_otel.py` writes it. */
const SENT = /^-[0-9a-z]+\.[0-9a-f]{12}\.sent$/;

/** Removes what is known of the loggers of a deleted run. What the loggers have stays, and so do files in a folder of the user. */
export function removeLoggerStates(home: string, run: string): void {
  for (const state of all(home)) if (state.run === run) rmSync(fileOf(home, state), { force: true });
  const folder = join(homeFolders(home).loggers, 'otel');
  for (const name of namesIn(folder))
    if (name.startsWith(run) && SENT.test(name.slice(run.length))) rmSync(join(folder, name), { force: true });
}

/** Returns a sentence for each logger that fails. */
export function loggerWarnings(home: string): string[] {
  return all(home).flatMap(({ run, logger, failing_since: since, reason }) =>
    since === null
      ? []
      : `the logger ${logger} of run ${run} has failed since ${since.slice(0, 16)}Z: ${reason}. The run goes on, and the logger is tried again; \`npx trialgate export-metrics ${run} --to ${logger}\` tries it now`,
  );
}

const all = (home: string): LoggerState[] =>
  namesIn(folderOf(home)).flatMap((name) => read(join(folderOf(home), name)) ?? []);

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function read(file: string): LoggerState | null {
  try {
    return loggerState.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch {
    return null;
  }
}
