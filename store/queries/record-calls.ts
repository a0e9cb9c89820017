import { asc, inArray } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls, trials } from '../schema.ts';

type Row = typeof calls.$inferInsert;
export type CallRecord = Omit<Row, 'seq' | 'request' | 'response'> & { request: Uint8Array; response?: Uint8Array | null };

/**
 * Commits calls, all or none, and returns the ids of those it refused: their trial is unknown or closed, or at another attempt.
 * The trials stay locked FOR SHARE until the commit, so that no seal falls in between. Repeating it with the same ids is harmless.
 */
export async function recordCalls(db: Database, records: readonly CallRecord[]): Promise<Set<string>> {
  const ids = [...new Set(records.map((record) => record.trialId))];
  return db.transaction(async (tx) => {
    const open = await tx
      .select({ id: trials.id, attempt: trials.attempt, status: trials.status })
      .from(trials)
      .where(inArray(trials.id, ids))
      .orderBy(asc(trials.id))
      .for('share');
    const attempts = new Map(open.flatMap((trial) => (trial.status === 'created' ? [[trial.id, trial.attempt]] : [])));
    const accepted = records.filter((record) => attempts.get(record.trialId) === record.attempt);
    if (accepted.length > 0) await tx.insert(calls).values(accepted.map(toRow)).onConflictDoNothing();
    const kept = new Set(accepted);
    return new Set(records.filter((record) => !kept.has(record)).map((record) => record.id));
  });
}

function toRow({ request, response, reason, finishReason, ...rest }: CallRecord): Row {
  return {
    ...rest,
    request: asBuffer(request),
    response: response ? asBuffer(response) : null,
    reason: reason && withoutNul(reason),
    finishReason: finishReason && withoutNul(finishReason),
  };
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** An engine's message may quote what a model wrote, and Postgres text has no NUL. */
const withoutNul = (text: string): string => text.replaceAll('\u0000', '\uFFFD');
