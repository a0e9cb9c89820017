import { closeSync, fstatSync, mkdirSync, openSync, readSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';

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

/** Returns a short reason for a process's end from its last lines, preferring lines that name an error. */
export function errorSummary(lines: string[]): string {
  const errors = lines.filter((line) => /error|fatal|panic|exception|cannot|could not|denied|no space/i.test(line));
  const chosen = (errors.length ? errors : lines).slice(-3).map((line) => line.trim().slice(0, 300));
  return chosen.join(' | ');
}
