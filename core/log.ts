import type { LogRecord } from './log-record.ts';
import { oneLine } from './one-line.ts';

/** What a line is about, besides its words. */
export type LogFields = Partial<Omit<LogRecord, 'time' | 'process' | 'pid' | 'message'>>;

/** Writes one line. Without a level it is `info`. */
export type Log = (message: string, fields?: LogFields) => void;

export type LogFormat = 'text' | 'json';

export type LogOptions = {
  process: string;
  pid?: number;
  format: LogFormat;
  write: (line: string) => void;
  /** What all lines are about that are written now. */
  about?: () => LogFields;
};

/** What agents, engines and servers send is part of some messages, and no line may be longer than readers of logs take. */
const LONGEST = 8_000;
const LONGEST_ID = 256;
/** What a stack has of an error and of each of its causes. */
const MOST_ERRORS = 4;
const LONGEST_WHY = 400;
const LONGEST_FRAMES = 1_500;

/** Returns a process's log: people read it as text, programs as JSON. */
export function makeLog({ process, pid, format, write, about }: LogOptions): Log {
  return (message, fields = {}) => {
    const { level = 'info', stack, ...ids } = { ...about?.(), ...fields };
    const left = message.length - LONGEST;
    const record: LogRecord = {
      time: new Date().toISOString(),
      level,
      process,
      ...(pid === undefined ? {} : { pid }),
      message: shortened(message, LONGEST) + (left > 0 ? ` [… ${left} characters left out]` : ''),
      ...Object.fromEntries(
        Object.entries(ids).flatMap(([name, id]) => (id ? [[name, shortened(id, LONGEST_ID)]] : [])),
      ),
      ...(stack ? { stack: stack.slice(0, LONGEST).split('\n').map(oneLine).join('\n').toWellFormed() } : {}),
    };
    const text = () => textOf({ ...record, message: record.message + idsOf(record) });
    write(format === 'json' ? JSON.stringify(record) : `${record.time} ${process}: ${text()}`);
  };
}

/** Returns a record's words for people, with its level unless that is `info`. What its stack has more than its message follows on lines that are set in. */
export function textOf({ level, message, stack }: Pick<LogRecord, 'level' | 'message' | 'stack'>): string {
  const word = level === 'info' ? '' : `${level.toUpperCase()}: `;
  const frames = stack?.split('\n').filter((line) => /^\s/.test(line)) ?? [];
  // Some messages begin with it.
  const lines = [message.startsWith(word) ? message : word + message, ...frames.map((line) => `    ${line.trim()}`)];
  return lines.map(oneLine).join('\n');
}

/** Returns the run and the trial of a record that its message does not name. */
function idsOf({ run_id: run, trial_id: trial, message }: LogRecord): string {
  const named = { run, trial };
  const ids = Object.entries(named).flatMap(([what, id]) => (id && !message.includes(id) ? [`${what} ${id}`] : []));
  return ids.length > 0 ? ` [${ids.join(', ')}]` : '';
}

/** Returns the fields that say what failed, with the causes. */
export function failureFields(error: unknown): Pick<LogFields, 'error' | 'stack'> {
  if (!(error instanceof Error)) return {};
  const code = 'code' in error && typeof error.code === 'string' && error.code !== '' ? error.code : error.name;
  const stacks: string[] = [];
  for (let each: unknown = error; each instanceof Error && stacks.length < MOST_ERRORS; each = causeOf(each))
    stacks.push(stackOf(each));
  return { error: code, stack: stacks.join('\n    caused by ') };
}

/** Returns an error's stack. A long message, such as that of an SQL statement, must not take the place of the frames. */
function stackOf({ name, message, stack = '' }: Error): string {
  const words = stack.indexOf(message);
  const at = stack.indexOf('\n    at ', words < 0 ? 0 : words + message.length);
  const frames = at < 0 ? '' : stack.slice(at, at + LONGEST_FRAMES);
  return `${name}: ${shortened(message, LONGEST_WHY)}${frames}`;
}

const causeOf = (error: Error): unknown => error.cause ?? (error instanceof AggregateError ? error.errors[0] : null);

const shortened = (text: string, longest: number): string => oneLine(text.slice(0, longest)).toWellFormed();
