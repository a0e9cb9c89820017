import { parseJson } from '../../core/json.ts';
import { logRecord, type LogLevel, type LogRecord } from '../../core/log-record.ts';

/** The time near the beginning of a line of PostgreSQL and Temporal, of vLLM, which writes no year, and of ours in text. All run in UTC. */
const TIME = /^(?:[^\d\n]|pid=\d+){0,40}(?:(\d{4})-)?(\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,3}))?/;
/** Words by which programs without our schema say near a line's beginning how severe it is. */
const ERROR = /\b(ERROR|FATAL|PANIC|CRITICAL)\b|^error: |\blevel=error\b/;
const WARNING = /\b(WARN|WARNING)\b|\blevel=warn\b/;
const NEAR = 120;

/** Returns the record of a line in our schema; null for any other text. */
export function recordOfLine(line: string): LogRecord | null {
  return line.startsWith('{') ? (logRecord.safeParse(parseJson(line)).data ?? null) : null;
}

/** Returns a line of any program as a record. One without a time was written at `before`, the time of the line above it. */
export function readLogLine(line: string, program: string, before: string): LogRecord {
  const record = recordOfLine(line);
  if (record !== null) return record;
  return { time: timeOf(line, before), level: levelOf(line.slice(0, NEAR)), process: program, message: line };
}

function timeOf(line: string, before: string): string {
  const [, year = before.slice(0, 4), day, time, fraction = ''] = TIME.exec(line.slice(0, NEAR)) ?? [];
  const written = `${year}-${day}T${time}.${fraction.padEnd(3, '0')}Z`;
  return Number.isNaN(Date.parse(written)) ? before : written;
}

function levelOf(beginning: string): LogLevel {
  if (ERROR.test(beginning)) return 'error';
  return WARNING.test(beginning) ? 'warning' : 'info';
}

/** Returns a function that tells which records are about a run. One that says of no run and trial counts if its message names the run. */
export function aboutRun(runId: string): (record: LogRecord) => boolean {
  // Ids of the run's trials and groups begin with the run's. Another run's id may do so too.
  const id = runId.replaceAll('.', '\\.');
  const name = new RegExp(`(?<![\\w.-])${id}(?!\\w|\\.\\w|-(?!\\d+\\.\\d+-|eval\\.\\d))`);
  return ({ run_id: run, trial_id: trial, message }) =>
    run === undefined ? name.test(trial ?? message) : run === runId;
}
