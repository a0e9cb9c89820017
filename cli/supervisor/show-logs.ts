import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';
import { CLIENT_RUN_ID } from '../../core/ids.ts';
import { textOf } from '../../core/log.ts';
import { LOG_LEVELS, type LogLevel, type LogRecord } from '../../core/log-record.ts';
import { homeFolders } from '../folders.ts';
import { isGateway } from './gateways.ts';
import { readNewLines } from './logs.ts';
import { aboutRun, readLogLine, recordOfLine } from './read-log-line.ts';

export type LogOptions = {
  /** A component or a run; absent: all components. */
  name?: string;
  /** The number of last lines of each log. */
  lines: string;
  follow: boolean;
  /** The least severe level that is shown. */
  level?: LogLevel;
  json: boolean;
};

/** A line of a log, with the log's name. */
type Line = { log: string; line: string; record: LogRecord };
type Wanted = (record: LogRecord) => boolean;

/** The longest line of which a few hundred are read from the end of a log. Longer ones are fewer than was asked for. */
const USUAL_BYTES = 2_048;
const POLL_MS = 250;

/**
 * Prints the last lines of the logs and, with `follow`, new lines until `signal` aborts: those of all logs in the order of their times. With
 * several logs each line has its log's name.
 */
export async function showLogs(home: string, options: LogOptions, signal: AbortSignal): Promise<void> {
  const count = Number(options.lines);
  if (!Number.isInteger(count) || count < 0)
    throw new TrialgateError('bad_input', `--lines: expected a count, found ${options.lines}`);
  const { name, level } = options;
  const isComponent = namesOfLogs(home).some((each) => name !== undefined && isOf(name, each));
  const [component, run] = isComponent ? [name, undefined] : [undefined, name];
  const files = logFiles(home, component);
  if (files.length === 0) throw new TrialgateError('bad_input', `no logs in ${homeFolders(home).logs} yet`);
  if (run !== undefined && !CLIENT_RUN_ID.test(run)) throw nothingOf(home, run);
  const wanted = wantedBy(run, level);
  const show = printer(options.json, component === undefined || files.length > 1);
  const ends = new Map(files.map((file) => [file, statSync(file).size]));
  const search = { count, run, wanted, whole: run !== undefined || level !== undefined };
  const last = (await Promise.all([...ends].map(([file, end]) => lastOf(file, end, search)))).flat();
  if (run !== undefined && last.length === 0 && count > 0) {
    if (!options.follow) throw nothingOf(home, run);
    console.error(`no line is about run ${run} yet`);
  }
  show(last);
  const times = new Map<string, string>();
  while (options.follow && !signal.aborted) {
    const added: Line[] = [];
    // A component may start, and begin its log, at any time.
    for (const file of logFiles(home, component)) {
      const { lines, end } = await readNewLines(file, ends.get(file) ?? 0);
      ends.set(file, end);
      for (const line of lines) {
        const record = readLogLine(line, nameOf(file), times.get(file) ?? new Date().toISOString());
        times.set(file, record.time);
        if (wanted(record)) added.push({ log: nameOf(file), line, record });
      }
    }
    show(added);
    await sleep(POLL_MS, undefined, { signal }).catch(() => {});
  }
}

function wantedBy(run: string | undefined, level: LogLevel = 'debug'): Wanted {
  const least = LOG_LEVELS.indexOf(level);
  const isOfRun: Wanted = run === undefined ? () => true : aboutRun(run);
  return (record) => LOG_LEVELS.indexOf(record.level) >= least && isOfRun(record);
}

/** Returns the last lines of a log that are wanted, up to its byte `end`. For a run or a level all of it is searched, for a run also what came before. */
async function lastOf(
  file: string,
  end: number,
  { count, run, wanted, whole }: { count: number; run: string | undefined; wanted: Wanted; whole: boolean },
): Promise<Line[]> {
  if (count === 0) return [];
  const [log, older] = [nameOf(file), `${file}.1`];
  const from = whole ? 0 : Math.max(0, end - count * USUAL_BYTES);
  const parts = [{ part: file, from, end }];
  if (run !== undefined && existsSync(older)) parts.unshift({ part: older, from: 0, end: statSync(older).size });
  const kept: Line[] = [];
  // The lines before the first that has a time.
  let time = statSync(file).mtime.toISOString();
  for (const { part, from: start, end: size } of parts) {
    // The first line from the middle of a log on has lost its beginning.
    let isCut = start > 0;
    for await (const line of linesOf(part, start, size)) {
      const record = isCut || !line.trim() ? null : readLogLine(line, log, time);
      isCut = false;
      if (record === null) continue;
      ({ time } = record);
      if (wanted(record)) kept.push({ log, line, record });
      if (kept.length > 2 * count) kept.splice(0, kept.length - count);
    }
  }
  return kept.slice(-count);
}

function linesOf(file: string, start: number, size: number): AsyncIterable<string> {
  if (size === start) return (async function* () {})();
  return createInterface({ input: createReadStream(file, { start, end: size - 1 }), crlfDelay: Infinity });
}

/** Returns what prints lines in the order of their times. A line that is no record of ours is printed as its program wrote it. */
function printer(json: boolean, areNamed: boolean): (lines: Line[]) => void {
  return (lines) => {
    for (const { log, line, record } of lines.toSorted(byTime)) {
      if (json) console.log(JSON.stringify(record));
      else console.log((areNamed ? `${log.padEnd(15)} | ` : '') + (recordOfLine(line) ? shown(record) : line));
    }
  };
}

const byTime = (a: Line, b: Line): number =>
  a.record.time < b.record.time ? -1 : Number(a.record.time > b.record.time);

function shown(record: LogRecord): string {
  const level = record.level === 'info' ? '' : `${record.level.toUpperCase()}: `;
  // Some messages begin with it.
  return `${record.time} ${record.message.startsWith(level) ? '' : level}${textOf(record)}`;
}

const nameOf = (file: string): string => path.basename(file, '.log');

function namesOfLogs(home: string): string[] {
  try {
    return readdirSync(homeFolders(home).logs)
      .filter((name) => name.endsWith('.log'))
      .map(nameOf)
      .toSorted();
  } catch {
    // The folder does not exist yet, so there are no logs.
    return [];
  }
}

const isOf = (component: string, name: string): boolean =>
  name === component || (component === 'gateway' && isGateway(name));

function logFiles(home: string, component: string | undefined): string[] {
  const { logs } = homeFolders(home);
  return namesOfLogs(home)
    .filter((name) => component === undefined || isOf(component, name))
    .map((name) => path.join(logs, `${name}.log`));
}

function nothingOf(home: string, name: string): TrialgateError {
  const there = namesOfLogs(home).join(', ');
  return new TrialgateError(
    'bad_input',
    `no log of ${name} in ${homeFolders(home).logs}, and no line there about a run of this name; there are logs of: ${there || 'nothing'}`,
  );
}
