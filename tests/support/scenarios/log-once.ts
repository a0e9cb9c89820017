import { destinationOf } from '../../../cli/log/destination.ts';
import { readRunLog } from '../../../cli/log/logger-entries.ts';
import { LoggerLocks } from '../../../cli/log/logger-locks.ts';
import type { LoggerState } from '../../../cli/log/logger-state.ts';
import { writeLog } from '../../../cli/log/write-log.ts';
import type { LoggerSetting } from '../../../core/run-config/loggers.ts';
import type { Database } from '../../../store/database.ts';

type What = { db: Database; home: string; runId: string; logger?: LoggerSetting };

/** Writes to a logger what it does not have yet of a run. */
export async function logOnce({ logger = { name: 'csv' }, ...what }: What): Promise<LoggerState | null> {
  const { db, home, runId } = what;
  const locks = new LoggerLocks(db);
  const destination = destinationOf(home, logger);
  try {
    return await writeLog(
      { ...what, locks, destination, read: () => readRunLog(db, runId), report: console.error },
      new AbortController().signal,
    );
  } finally {
    locks.close();
  }
}
