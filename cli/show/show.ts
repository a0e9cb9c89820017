import { desc, eq } from 'drizzle-orm';
import type { Database } from '../../store/database.ts';
import { runs } from '../../store/schema.ts';
import { readRunRecord, type RunRecord } from './run-record.ts';
import { runTable } from './run-table.ts';
import { table } from './table.ts';
import { readTrialRecord, transcript } from './trial-transcript.ts';

/** What `trialgate show` prints. A name is a run's if there is such a run, else a trial's. */
export async function show(db: Database, id: string | undefined, json: boolean): Promise<string> {
  const print = <T>(value: T, text: (value: T) => string): string => (json ? JSON.stringify(value, null, 2) : text(value));
  if (id === undefined) {
    const all = await db.select().from(runs).orderBy(desc(runs.createdAt));
    const rows = all.map((run) => ({ run: run.id, status: run.status, reason: run.reason, created_at: run.createdAt.toISOString() }));
    return print(rows, () =>
      rows.length ? table(['run', 'status', 'created'], rows.map((row) => [row.run, row.status, row.created_at])) : 'no runs yet: npx trialgate train FILE',
    );
  }
  const [run] = await db.select({ id: runs.id }).from(runs).where(eq(runs.id, id));
  if (!run) return print(await readTrialRecord(db, id), transcript);
  return print(await readRunRecord(db, id), (record) =>
    [`run ${record.run}: ${record.status}${record.reason ? ` (${record.reason})` : ''}${originOf(record)}`, runTable(record)].join('\n\n'),
  );
}

function originOf({ forked_from, rescores }: RunRecord): string {
  if (forked_from === null) return '';
  return rescores === null ? `, forked from ${forked_from}` : `, ${rescores} again from ${forked_from}, under other reward weights`;
}
