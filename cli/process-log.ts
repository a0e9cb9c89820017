import { formatWithOptions } from 'node:util';
import { failureFields, makeLog, type Log, type LogFields, type LogFormat } from '../core/log.ts';
import type { LogLevel } from '../core/log-record.ts';
import type { Deployment } from './config/schema.ts';

/** The methods of `console` that print a line. */
const METHODS = {
  debug: 'debug',
  log: 'info',
  info: 'info',
  warn: 'warning',
  error: 'error',
} as const satisfies Record<string, LogLevel>;

/**
 * Returns the log of this process, which it writes to stderr. In JSON, whatever this process prints with `console` becomes a record too, so
 * that a program that reads the log finds nothing else.
 */
export function processLog(name: string, format: LogFormat, about?: () => LogFields): Log {
  const log = makeLog({
    process: name,
    pid: process.pid,
    format,
    write: (line) => process.stderr.write(`${line}\n`),
    ...(about ? { about } : {}),
  });
  if (format === 'json') recordConsole(log);
  return log;
}

/** Returns the format of a process that a person started: text, unless they want JSON. */
export const logFormatOf = ({ log_format: format }: Pick<Deployment, 'log_format'>): LogFormat =>
  format === 'json' ? 'json' : 'text';

/** Returns the format of the deployment's log files: JSON, which `trialgate logs` shows as text, unless they want text. */
export const fileLogFormatOf = ({ log_format: format }: Pick<Deployment, 'log_format'>): LogFormat =>
  format === 'text' ? 'text' : 'json';

function recordConsole(log: Log): void {
  for (const method of Object.keys(METHODS) as (keyof typeof METHODS)[])
    console[method] = (...parts: unknown[]) => {
      const failure = parts.find((part) => part instanceof Error);
      const words = parts.map((part) => (part instanceof Error ? part.message || part.name : part));
      log(formatWithOptions({ colors: false }, ...words), { level: METHODS[method], ...failureFields(failure) });
    };
}
