import { createReadStream, existsSync, readdirSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TrialgateError } from '../../core/errors.ts';
import { CLIENT_RUN_ID } from '../../core/ids.ts';
import { textOf } from '../../core/log.ts';
import { oneLine } from '../../core/one-line.ts';
import { LOG_LEVELS, type LogLevel, type LogRecord } from '../../core/log-record.ts';
import { homeFolders } from '../folders.ts';
import { isGateway } from './gateways.ts';
import { readNewLines } from './logs.ts';
import { aboutRun, readLogLine, recordOfLine } from './read-log-line.ts';

export type LogOptions = {
  /** A component or a run; absent: all components. */
  name?: string;
  /** A run, also one of which no line is known yet. */
  run?: string;
  /** The number of last lines of each log. */
  lines: string;
  follow: boolean;
  /** The least severe level that is shown. */
  level?: LogLevel;
  json: boolean;
};

/** A line of a log, with the log's name. */
type Line = { log: string; line: string; record: LogRecord };
type Wanted = { isOfRun: (record: LogRecord) => boolean; isSevere: (record: LogRecord) => boolean };

/** The bytes of a usual line. A part of a log that has too few lines is read again with more. */
const USUAL_BYTES = 2_048;
const CHUNK_BYTES = 65_536;
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
  const component = isComponent || options.run !== undefined ? name : undefined;
  const run = options.run ?? (isComponent ? undefined : name);
  const files = logFiles(home, component);
  if (component !== undefined && !isComponent) throw nothingOf(home, component);
  if (files.length === 0) throw new TrialgateError('bad_input', `no logs in ${homeFolders(home).logs} yet`);
  if (run !== undefined && !CLIENT_RUN_ID.test(run)) throw nothingOf(home, run);
  const wanted = wantedBy(run, level);
  const show = printer(options.json, component === undefined || files.length > 1);
  const ends = new Map<string, number>();
  // A line that is being written is shown when it is whole.
  for (const file of files) ends.set(file, options.follow ? await endOfLines(file) : statSync(file).size);
  const whole = run !== undefined || level !== undefined;
  const found = await Promise.all([...ends].map(([file, end]) => lastOf(file, end, { count, wanted, whole })));
  if (run !== undefined && !found.some(({ isKnown }) => isKnown)) {
    // A name that is mistyped must not be waited for.
    if (!options.follow || options.run === undefined) throw nothingOf(home, run);
    console.error(`no line is about run ${run} yet`);
  }
  show(found.flatMap(({ lines }) => lines));
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
        if (wanted.isOfRun(record) && wanted.isSevere(record)) added.push({ log: nameOf(file), line, record });
      }
    }
    show(added);
    await sleep(POLL_MS, undefined, { signal }).catch(() => {});
  }
}

function wantedBy(run: string | undefined, level: LogLevel = 'debug'): Wanted {
  const least = LOG_LEVELS.indexOf(level);
  const isOfRun = run === undefined ? () => true : aboutRun(run);
  return { isOfRun, isSevere: (record) => LOG_LEVELS.indexOf(record.level) >= least };
}

type Search = { count: number; wanted: Wanted; whole: boolean };
type Found = { lines: Line[]; isKnown: boolean };

/**
 * Returns the last lines of a log that are wanted, up to its byte `end`, and whether any is about the run. For a run or a level all of it is
 * searched, and what came before it.
 */
async function lastOf(file: string, end: number, search: Search): Promise<Found> {
  const { count, whole } = search;
  if (count === 0 && !whole) return { lines: [], isKnown: true };
  for (let bytes = count * USUAL_BYTES; ; bytes *= 4) {
    const from = whole ? 0 : Math.max(0, end - bytes);
    const found = await searchPart(file, { from, end }, search);
    if (from === 0 || found.lines.length >= count) return found;
  }
}

async function searchPart(
  file: string,
  { from, end }: { from: number; end: number },
  { count, wanted, whole }: Search,
): Promise<Found> {
  const [log, older] = [nameOf(file), `${file}.1`];
  const parts = [{ part: file, from, end }];
  if (whole && existsSync(older)) parts.unshift({ part: older, from: 0, end: statSync(older).size });
  const kept: Line[] = [];
  let isKnown = false;
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
      if (!wanted.isOfRun(record)) continue;
      isKnown = true;
      if (wanted.isSevere(record)) kept.push({ log, line, record });
      if (kept.length > 2 * count) kept.splice(0, kept.length - count);
    }
  }
  return { lines: count === 0 ? [] : kept.slice(-count), isKnown };
}

/** Lines end at a line feed only: programs write a carriage return within one, for bars of progress. */
async function* linesOf(file: string, start: number, size: number): AsyncGenerator<string> {
  if (size === start) return;
  let rest = '';
  for await (const chunk of createReadStream(file, { start, end: size - 1, encoding: 'utf8' })) {
    const lines = (rest + String(chunk)).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
  yield rest;
}

/** Returns where the last whole line of a log ends. */
async function endOfLines(file: string): Promise<number> {
  const handle = await open(file, 'r');
  try {
    for (let end = (await handle.stat()).size; end > 0; end -= CHUNK_BYTES) {
      const from = Math.max(0, end - CHUNK_BYTES);
      const { bytesRead, buffer } = await handle.read({ buffer: Buffer.alloc(end - from), position: from });
      const last = buffer.subarray(0, bytesRead).lastIndexOf('\n');
      if (last >= 0) return from + last + 1;
    }
    return 0;
  } finally {
    await handle.close();
  }
}

/** Returns what prints lines in the order of their times. A line that is no record of ours is printed as its program wrote it, but for control characters. */
function printer(json: boolean, areNamed: boolean): (lines: Line[]) => void {
  return (lines) => {
    for (const { log, line, record } of lines.toSorted(byTime)) {
      if (json) console.log(oneLine(JSON.stringify(asOf(log, record))));
      else
        console.log((areNamed ? `${log.padEnd(15)} | ` : '') + (recordOfLine(line) ? shown(record) : withTabs(line)));
    }
  };
}

const byTime = (a: Line, b: Line): number =>
  a.record.time < b.record.time ? -1 : Number(a.record.time > b.record.time);

/** Each gateway calls itself so. Its log says which it is. */
const asOf = (log: string, record: LogRecord): LogRecord =>
  record.process === 'gateway' && isGateway(log) ? { ...record, process: log } : record;

const withTabs = (line: string): string => line.trimEnd().split('\t').map(oneLine).join('\t');

const shown = (record: LogRecord): string => `${record.time} ${textOf(record)}`;

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
    `no log of ${name} in ${homeFolders(home).logs}, and no line there about a run of this name; there are logs of: ${there || 'nothing'}. To wait for a run's first line, add --follow --run ${name}`,
  );
}
