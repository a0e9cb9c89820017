import type { Database } from '../../store/database.ts';
import { readRunLog, type RunLog } from './logger-entries.ts';

/** Reads what the loggers of runs are to have: once for all loggers of a run, and again when its marker has changed. */
export class RunLogs {
  readonly #db: Database;
  #markers = new Map<string, string>();
  readonly #read = new Map<string, { marker: string; log: Promise<RunLog>; isSettling: boolean }>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** Says how the runs stand: text that changes with what their loggers are to have. */
  mark(rows: readonly { runId: string; marker: string }[]): void {
    this.#markers = new Map(rows.map(({ runId, marker }) => [runId, marker]));
    for (const runId of this.#read.keys()) if (!this.#markers.has(runId)) this.#read.delete(runId);
  }

  markerOf(runId: string): string | undefined {
    return this.#markers.get(runId);
  }

  /** @throws TrialgateError `not_found` for a run that was deleted */
  async read(runId: string): Promise<RunLog> {
    const marker = this.#markers.get(runId);
    const known = this.#read.get(runId);
    if (known !== undefined && known.marker === marker && !known.isSettling) return known.log;
    const log = readRunLog(this.#db, runId);
    if (marker === undefined) return log;
    const reading = { marker, log, isSettling: false };
    this.#read.set(runId, reading);
    try {
      ({ isSettling: reading.isSettling } = await log);
    } catch (error) {
      if (this.#read.get(runId) === reading) this.#read.delete(runId);
      throw error;
    }
    return log;
  }
}
