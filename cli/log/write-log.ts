import { oneLine } from '../../core/one-line.ts';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import type { Destination } from './destination.ts';
import { keyOf, readEntries, type RunLog } from './logger-entries.ts';
import type { LoggerLocks } from './logger-locks.ts';
import { LoggerProcess, type Closing } from './logger-process.ts';
import { noteWritten, type LoggerState } from './logger-state.ts';
import { TrialTracer } from './trace-trials.ts';
import { writeSpans } from './write-spans.ts';

export type LogOptions = {
  db: Database;
  locks: LoggerLocks;
  home: string;
  runId: string;
  destination: Destination;
  read: () => Promise<RunLog>;
  /** Absent: writes what there is. Else goes on until the run has ended, or has had nothing to write for so long. */
  follow?: { pollMs: number; idleMs(): number };
  onWritten?: () => void;
  /** Takes a line about what was lost for good. */
  report: (line: string) => void;
};

/** The number of entries that are read and written at once. */
const AT_ONCE = 20;
const MOST_OF_A_REASON = 500;

/**
 * Writes to one logger what it does not have yet of a run. The logger's own store tells what it has, so a killed, late or second logger writes
 * each step once. Returns null if another process does this already.
 */
export async function writeLog(options: LogOptions, signal: AbortSignal): Promise<LoggerState | null> {
  const { locks, runId, destination } = options;
  const lock = await locks.take(`logger ${destination.logger} ${destination.digest} ${runId}`);
  if (!lock) return null;
  try {
    const until = AbortSignal.any([signal, lock.lost]);
    const program = await LoggerProcess.start(destination, until);
    try {
      const write = destination.logger === 'otel' ? writeSpans : writeAll;
      return await write(options, program, () => lock.confirmHeld(), until);
    } finally {
      await program.end();
    }
  } finally {
    await lock.release();
  }
}

async function writeAll(
  { db, home, runId, destination, read, follow, onWritten }: LogOptions,
  program: LoggerProcess,
  confirmHeld: () => Promise<void>,
  signal: AbortSignal,
): Promise<LoggerState> {
  const tracer = new TrialTracer({ db, runId, destination, program, confirmHeld });
  const note = ({ name, entries }: RunLog, endedAt: Date | null) =>
    noteWritten(home, runId, destination, {
      name,
      written: program.written.size,
      traces: tracer.count(entries),
      endedAt,
      failure: tracer.failure && reasonOf(tracer.failure),
    });
  /** Closes the run. A log that lacks traces fails with their reason, so that it is tried again. */
  const closed = async (log: RunLog, as: Closing, at: Date): Promise<LoggerState> => {
    await program.close(as, at);
    if (tracer.failure !== null) throw new Error(tracer.failure);
    return note(log, as === 'open' ? null : log.endedAt);
  };
  for (let idleSince = Date.now(); ;) {
    const log = await read();
    const { endedAt, status, isSettling } = log;
    if (program.opened !== null && program.opened !== log.name) await program.close('superseded', new Date());
    if (program.opened === null) await program.open(log, runId);
    const missing = log.entries.filter(({ id }) => !program.written.has(keyOf(id)));
    for (let at = 0; at < missing.length; at += AT_ONCE) {
      const entries = await readEntries(db, runId, missing.slice(at, at + AT_ONCE));
      signal.throwIfAborted();
      await confirmHeld();
      await program.write(entries);
      onWritten?.();
      note(log, null);
      idleSince = Date.now();
    }
    const { hasWritten, hasMore } = await tracer.writeSome(log, signal);
    if (hasWritten) {
      onWritten?.();
      idleSince = Date.now();
    }
    note(log, null);
    if (hasMore) continue;
    if (endedAt !== null && !isSettling) return closed(log, status, endedAt);
    if (!follow || (!isSettling && Date.now() - idleSince > follow.idleMs())) return closed(log, 'open', new Date());
    await sleep(follow.pollMs, signal);
  }
}

/** Returns why a logger failed, for people: without user and password of an address, and short. */
export const reasonOf = (error: unknown): string =>
  oneLine(error instanceof Error ? error.message : String(error))
    .replaceAll(/\/\/[^\s/@]*@/g, '//')
    .slice(0, MOST_OF_A_REASON);
