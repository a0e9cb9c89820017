import { and, asc, desc, eq, isNull, or, type SQL } from 'drizzle-orm';
import { choicesOf } from '../calls/choices.ts';
import { restorePrompts } from '../calls/restore-ids.ts';
import { parseStored } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import type { JsonObject } from '../json.ts';
import { calls, trials } from '../schema.ts';
import type { Transaction } from './transaction.ts';

/** `withIds`: the prompt's ids are read too. */
export type SameCall = { trialId: string; attempt: number; digest: Uint8Array; idempotencyKey: string | null; withIds?: boolean };
/** `prompt`, `completions`: the ids of the prompt and of each choice. */
export type Replay = { id: string; reply: JsonObject; prompt: Int32Array | null; completions: (Int32Array | null)[] };

/**
 * The reply of the last call of this attempt that completed, with the same body, and the same key where the client names one.
 * A commit that is under way is waited for, also one whose process has died, and one that is just taken back; and what is handed out is not taken back.
 */
export async function replayCall(db: Database, { trialId, attempt, digest, idempotencyKey, withIds = false }: SameCall): Promise<Replay | undefined> {
  const ofAttempt = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt));
  const same = and(ofAttempt, eq(calls.status, 'completed'), isNull(calls.choiceOf), eq(calls.digest, Buffer.from(digest)));
  return db.transaction(async (tx) => {
    await tx.select({ id: trials.id }).from(trials).where(eq(trials.id, trialId)).for('share');
    const [last] = await tx
      .select({ id: calls.id })
      .from(calls)
      .where(idempotencyKey === null ? same : and(same, eq(calls.idempotencyKey, idempotencyKey)))
      .orderBy(desc(calls.seq))
      .limit(1);
    if (!last) return undefined;
    const rowsOfIt = and(ofAttempt, or(eq(calls.id, last.id), eq(calls.choiceOf, last.id)));
    await tx.update(calls).set({ replayed: true }).where(rowsOfIt);
    const rows = await tx.select({ response: calls.response, completionTokenIds: calls.completionTokenIds }).from(calls).where(rowsOfIt).orderBy(asc(calls.seq));
    const replies = rows.map(({ response }) => (response ? parseStored(response) : {}));
    const choices = replies.flatMap(choicesOf);
    const completions = rows.map(({ completionTokenIds }) => completionTokenIds);
    return { id: last.id, reply: { ...replies[0], choices }, prompt: withIds ? await promptOf(tx, ofAttempt, last.id) : null, completions };
  });
}

/** A prompt is stored as what it adds to an earlier one, which may add to one before. */
async function promptOf(tx: Transaction, ofAttempt: SQL | undefined, callId: string): Promise<Int32Array | null> {
  const { id, baseId, sharedIds, promptTokenIds, completionTokenIds } = calls;
  const rows = await tx.select({ id, baseId, sharedIds, promptTokenIds, completionTokenIds }).from(calls).where(ofAttempt).orderBy(asc(calls.seq));
  return restorePrompts(rows)[rows.findIndex((row) => row.id === callId)] ?? null;
}
