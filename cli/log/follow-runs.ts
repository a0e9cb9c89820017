import { eq, sql } from 'drizzle-orm';
import { loggerList } from '../../core/run-config/loggers.ts';
import { sleep } from '../../core/sleep.ts';
import type { Database } from '../../store/database.ts';
import { groups, iterations, runs } from '../../store/schema.ts';
import { destinationOf, type Destination } from './destination.ts';
import { LoggerLocks } from './logger-locks.ts';
import { noteFailure, readLoggerState, removeLoggerStates } from './logger-state.ts';
import { RunLogs } from './run-logs.ts';
import { reasonOf, writeLog } from './write-log.ts';

const POLL_MS = 5_000;
export const LONGEST_WAIT_MS = 300_000;
/** The most logger programs that one worker runs at once. */
const MOST_PROGRAMS = 16;
/** A program that has had nothing to write for so long ends; sooner where others wait for their turn. */
const IDLE_MS = 900_000;
const IDLE_WHILE_OTHERS_WAIT_MS = 20_000;

type Options = {
  db: Database;
  home: string;
  pollMs?: number;
  mostPrograms?: number;
  report: (line: string) => void;
};

/**
 * Writes every run to the loggers that its file names, until `signal` aborts: those under way, and those that ended within a day. No run waits
 * for its loggers, and none of them for another, up to the number of programs.
 */
export async function followRuns(options: Options, signal: AbortSignal): Promise<void> {
  const { db, home, pollMs = POLL_MS, mostPrograms = MOST_PROGRAMS, report } = options;
  const locks = new LoggerLocks(db);
  const logs = new RunLogs(db);
  const writing = new Map<string, Promise<void>>();
  /** The markers of the runs of which a logger has everything. */
  const idle = new Map<string, string>();
  const failed = new Map<string, { runId: string; again: number; wait: number }>();
  /** Runs whose settings cannot be read, each of which is reported once. */
  const refused = new Set<string>();
  let othersWait = false;

  async function write(key: string, { runId, marker }: Row, destination: Destination): Promise<void> {
    let last = marker;
    const read = () => {
      last = logs.markerOf(runId) ?? last;
      return logs.read(runId);
    };
    const follow = { pollMs, idleMs: () => (othersWait ? IDLE_WHILE_OTHERS_WAIT_MS : IDLE_MS) };
    const onWritten = () => void failed.delete(key);
    try {
      const state = await writeLog({ db, locks, home, runId, destination, read, follow, onWritten, report }, signal);
      if (state !== null) idle.set(key, last);
      failed.delete(key);
    } catch (error) {
      if (signal.aborted) return;
      if (await isDeleted(db, runId)) {
        removeLoggerStates(home, runId);
        idle.set(key, marker);
        return;
      }
      const reason = reasonOf(error);
      if (noteFailure(home, runId, destination, reason))
        report(`the logger ${destination.logger} of run ${runId} fails: ${reason}`);
      const wait = failed.get(key)?.wait ?? pollMs;
      failed.set(key, { runId, again: Date.now() + wait, wait: Math.min(2 * wait, LONGEST_WAIT_MS) });
    }
  }

  try {
    while (!signal.aborted) {
      // If the store cannot be read now, the next poll reads it.
      const rows = await runsToLog(db).catch(() => null);
      if (rows) logs.mark(rows);
      othersWait = false;
      const listed = new Set<string>();
      for (const row of rows ?? []) {
        if (row.fault !== null && !refused.has(row.runId)) {
          refused.add(row.runId);
          report(`the loggers of run ${row.runId} are left out: ${row.fault}`);
        }
        for (const setting of row.loggers) {
          const destination = destinationOf(home, setting);
          const key = `${row.runId} ${destination.digest}`;
          listed.add(key);
          if (writing.has(key) || idle.get(key) === row.marker || Date.now() < (failed.get(key)?.again ?? 0)) continue;
          if (row.endedAt !== null && readLoggerState(home, row.runId, destination)?.complete === row.endedAt) {
            idle.set(key, row.marker);
            continue;
          }
          if (writing.size >= mostPrograms) {
            othersWait = true;
            continue;
          }
          writing.set(
            key,
            write(key, row, destination)
              .catch((error: unknown) => report(`the loggers of run ${row.runId}: ${reasonOf(error)}`))
              .finally(() => writing.delete(key)),
          );
        }
      }
      if (rows) {
        for (const key of idle.keys()) if (!listed.has(key)) idle.delete(key);
        for (const [key, { runId }] of failed) {
          if (listed.has(key) || writing.has(key)) continue;
          failed.delete(key);
          if (await isDeleted(db, runId)) removeLoggerStates(home, runId);
        }
      }
      await sleep(pollMs, signal).catch(() => {});
    }
    await Promise.all(writing.values());
  } finally {
    locks.close();
  }
}

async function isDeleted(db: Database, runId: string): Promise<boolean> {
  const found = await db
    .select({ id: runs.id })
    .from(runs)
    .where(eq(runs.id, runId))
    .catch(() => null);
  return found?.length === 0;
}

type Row = { runId: string; marker: string; endedAt: string | null };

/** Reads the runs that have loggers. The settings of the many that ended long ago are not read. */
async function runsToLog(db: Database) {
  const hasLoggers = sql`jsonb_typeof(${runs.config} -> 'loggers') = 'array' and ${runs.config} -> 'loggers' <> '[]'`;
  const rows = await db
    .select({
      runId: runs.id,
      loggers: sql`${runs.config} -> 'loggers'`,
      endedAt: runs.endedAt,
      marker: sql<string>`concat_ws(' ', ${runs.status}, ${runs.endedAt}, (
        select concat_ws(' ', count(*) filter (where take.status = 'done'), max(take.ended_at))
        from ${iterations} as take where take.run_id = runs.id
      ), (
        select concat_ws(' ', count(*), count(evaluated.ended_at), max(evaluated.ended_at))
        from ${groups} as evaluated where evaluated.run_id = runs.id and evaluated.iteration is null
      ))`,
    })
    .from(runs)
    .where(
      sql`case when ${runs.status} in ('running', 'blocked') or ${runs.endedAt} > now() - interval '1 day' then ${hasLoggers} else false end`,
    );
  return rows.map(({ loggers, endedAt, ...row }) => {
    // A setting that an earlier version took must not silence the loggers of all other runs.
    const parsed = loggerList.safeParse(loggers);
    const fault = parsed.success ? null : (parsed.error.issues[0]?.message ?? 'bad settings');
    return { ...row, endedAt: endedAt?.toISOString() ?? null, loggers: parsed.data ?? [], fault };
  });
}
