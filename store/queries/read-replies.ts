import { and, eq, inArray } from 'drizzle-orm';
import { parseStored } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import type { JsonObject } from '../json.ts';
import { calls } from '../schema.ts';

/** Reads the replies to some calls of an attempt, by call. Leaves out a call that has no answer or belongs to another attempt. */
export async function readReplies(db: Database, { trialId, attempt, ids }: { trialId: string; attempt: number; ids: readonly string[] }): Promise<Map<string, JsonObject>> {
  const named = and(eq(calls.trialId, trialId), eq(calls.attempt, attempt), eq(calls.httpStatus, 200), inArray(calls.id, [...ids]));
  const rows = await db.select({ id: calls.id, response: calls.response }).from(calls).where(named);
  return new Map(rows.flatMap(({ id, response }) => (response ? [[id, parseStored(response)] as const] : [])));
}
