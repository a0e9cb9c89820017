import { closeSync, fstatSync, mkdirSync, openSync, readSync, renameSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
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

/** Returns the whole lines of a log from byte `offset` on, and where they end. A log that is shorter than that was begun anew. */
export async function readNewLines(file: string, offset: number): Promise<{ lines: string[]; end: number }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const from = size < offset ? 0 : offset;
    const { bytesRead, buffer } = await handle.read({ buffer: Buffer.alloc(size - from), position: from });
    const length = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1;
    const lines = buffer.subarray(0, length).toString('utf8').split('\n');
    return { lines: lines.filter((line) => line.trim()), end: from + length };
  } finally {
    await handle.close();
  }
}

/** Returns a short reason for a process's end from its last lines, preferring lines that name an error. */
export function errorSummary(log: string[]): string {
  const lines = log.map((line) => recordOfLine(line)?.message ?? line);
  const errors = lines.filter((line) => /error|fatal|panic|exception|cannot|could not|denied|no space/i.test(line));
  const chosen = (errors.length ? errors : lines).slice(-3).map((line) => line.trim().slice(0, 300));
  return chosen.join(' | ');
}
