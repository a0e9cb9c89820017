import { closeSync, fstatSync, mkdirSync, openSync, readSync, renameSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { oneLine } from '../../core/one-line.ts';
import type { LogRecord } from '../../core/log-record.ts';
import { recordOfLine } from './read-log-line.ts';

const ROTATE_AT_BYTES = 64 * 1024 * 1024;

/** Opens a component's log for appending. A large log is renamed to `.1` first. */
export function openLog(file: string): number {
  mkdirSync(path.dirname(file), { recursive: true });
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size > ROTATE_AT_BYTES) renameSync(file, `${file}.1`);
  return openSync(file, 'a');
}

/** Returns the last `count` lines that are not empty, from `offset` bytes on. */
export function lastLines(file: string, count: number, offset = 0): string[] {
  let descriptor: number;
  try {
    descriptor = openSync(file, 'r');
  } catch {
    return [];
  }
  try {
    const size = fstatSync(descriptor).size;
    const from = Math.max(offset, size - 16_384, 0);
    const buffer = Buffer.alloc(Math.max(size - from, 0));
    readSync(descriptor, buffer, 0, buffer.length, from);
    return buffer
      .toString('utf8')
      .split('\n')
      .filter((line) => line.trim())
      .slice(-count);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Returns the whole lines of a log from byte `offset` on, and where they end. A log that is shorter than that was begun anew: first come the
 * lines that were added to it before, now in `.1`.
 */
export async function readNewLines(file: string, offset: number): Promise<{ lines: string[]; end: number }> {
  const size = statSync(file, { throwIfNoEntry: false })?.size;
  // It is about to be begun anew.
  if (size === undefined) return { lines: [], end: offset };
  if (size >= offset) return readFrom(file, offset);
  const older = await readFrom(`${file}.1`, offset).catch(() => ({ lines: [] }));
  const { lines, end } = await readFrom(file, 0);
  return { lines: [...older.lines, ...lines], end };
}

async function readFrom(file: string, offset: number): Promise<{ lines: string[]; end: number }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const added = Math.max(size - offset, 0);
    const { bytesRead, buffer } = await handle.read({ buffer: Buffer.alloc(added), position: offset });
    const length = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1;
    const lines = buffer.subarray(0, length).toString('utf8').split('\n');
    return { lines: lines.filter((line) => line.trim()), end: offset + length };
  } finally {
    await handle.close();
  }
}

const ERROR_WORDS = /error|fatal|panic|exception|cannot|could not|denied|no space/i;

/** Returns a short reason for a process's end from its last lines, preferring errors, and then lines that name one. */
export function errorSummary(log: string[]): string {
  const lines = log.map((line) => {
    const record = recordOfLine(line);
    const words = record ? wordsOf(record) : line;
    const namesError = ERROR_WORDS.test(words);
    return { words, namesError, isError: record ? record.level === 'error' : namesError };
  });
  const errors = lines.filter(({ isError }) => isError);
  const named = errors.length > 0 ? errors : lines.filter(({ namesError }) => namesError);
  const chosen = (named.length > 0 ? named : lines).slice(-3).map(({ words }) => oneLine(words.trim().slice(0, 300)));
  return chosen.join(' | ');
}

/** Returns a record's message, with what failed where only its stack says that. */
function wordsOf({ message, stack = '' }: LogRecord): string {
  // In a stack of Node's or of Python's this is the last line that is not set in.
  const failure = stack.split('\n').findLast((line) => /^\S/.test(line)) ?? '';
  return message.includes(failure.replace(/^[\w.]+: /, '')) ? message : `${message}: ${failure}`;
}
