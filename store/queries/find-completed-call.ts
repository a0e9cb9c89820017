import { and, asc, desc, eq, isNull } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { parseStored } from '../calls/restore.ts';
import { isObject, type JsonObject } from '../json.ts';
import { calls } from '../schema.ts';

export type SameCall = { trialId: string; attempt: number; digest: Uint8Array; idempotencyKey: string | null };

/** The reply of the last call of this attempt with the same body, and the same key where the client names one, if it completed. */
export async function findCompletedCall(db: Database, { trialId, attempt, digest, idempotencyKey }: SameCall): Promise<{ id: string; reply: JsonObject } | undefined> {
  const same = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), isNull(calls.choiceOf), eq(calls.digest, Buffer.from(digest)));
  const fields = { id: calls.id, status: calls.status, response: calls.response };
  const [last] = await db
    .select(fields)
    .from(calls)
    .where(idempotencyKey === null ? same : and(same, eq(calls.idempotencyKey, idempotencyKey)))
    .orderBy(desc(calls.seq))
    .limit(1);
  if (last?.status !== 'completed' || !last.response) return undefined;
  const further = await db.select(fields).from(calls).where(and(eq(calls.trialId, trialId), eq(calls.choiceOf, last.id))).orderBy(asc(calls.seq));
  const replies = [last, ...further].map(({ response }) => (response ? parseStored(response) : {}));
  const choices = replies.flatMap((reply) => (Array.isArray(reply.choices) ? reply.choices.filter(isObject) : []));
  return { id: last.id, reply: { ...replies[0], choices } };
}
