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
    write(format === 'json' ? JSON.stringify(record) : `${record.time} ${process}: ${textOf(record)}`);
  };
}

/** Returns a record's words for people. What its stack has more than its message follows on lines that are set in. */
export function textOf({ message, stack }: Pick<LogRecord, 'message' | 'stack'>): string {
  const frames = stack?.split('\n').filter((line) => /^\s/.test(line)) ?? [];
  return [message, ...frames.map((line) => `    ${line.trim()}`)].join('\n');
}

/** Returns the fields that say what failed. */
export function failureFields(error: unknown): Pick<LogFields, 'error' | 'stack'> {
  if (!(error instanceof Error)) return {};
  const code = 'code' in error && typeof error.code === 'string' && error.code !== '' ? error.code : error.name;
  return { error: code, stack: error.stack };
}

const shortened = (text: string, longest: number): string => oneLine(text.slice(0, longest)).toWellFormed();
