import { and, asc, eq, or, sql } from 'drizzle-orm';
import { choicesOf } from '../calls/choices.ts';
import { parseStored } from '../calls/restore.ts';
import type { Database } from '../database.ts';
import type { JsonObject } from '../../core/json.ts';
import { calls, trials, undeliveredCalls } from '../schema.ts';
import { readTurn } from './read-turn.ts';

/** A request that equals another one. `withIds` also reads the ids of the prompt. */
export type SameCall = {
  trialId: string;
  attempt: number;
  digest: Uint8Array;
  idempotencyKey: string | null;
  withIds?: boolean;
};
/** A reply to replay. `prompt` and `completions` are the ids of the prompt and of each choice. */
export type Replay = { id: string; reply: JsonObject; prompt: Int32Array | null; completions: (Int32Array | null)[] };

/** A gateway that does not report a delivery for this long may have lost the store: its reply counts as lost. */
const UNDER_WAY_SECONDS = 30;

const isLost = sql<boolean>`${undeliveredCalls.isCut}
  or ${undeliveredCalls.recordedAt} < now() - make_interval(secs => ${UNDER_WAY_SECONDS})
  or not exists (select 1 from pg_stat_activity where pid = ${undeliveredCalls.backend})`;

/**
 * Takes the oldest completed reply to the same request, with the same idempotency key when the client sends one, that did not reach its
 * agent whole: the connection ended early, or the gateway died. Returns `under_way` when such replies exist and a gateway may still
 * deliver them. It waits for a commit in progress, also for one whose gateway has died or that is being rolled back. A reply is taken only
 * once, and its call is not retracted afterwards.
 */
export async function claimReply(
  db: Database,
  { trialId, attempt, digest, idempotencyKey, withIds = false }: SameCall,
): Promise<Replay | 'under_way' | undefined> {
  return db.transaction(async (tx) => {
    await tx.select({ id: trials.id }).from(trials).where(eq(trials.id, trialId)).for('share');
    const sameRequest = and(
      eq(undeliveredCalls.trialId, trialId),
      eq(undeliveredCalls.attempt, attempt),
      eq(undeliveredCalls.digest, Buffer.from(digest)),
    );
    const found = await tx
      .select({ id: undeliveredCalls.callId, isLost })
      .from(undeliveredCalls)
      .innerJoin(calls, and(eq(calls.id, undeliveredCalls.callId), eq(calls.status, 'completed')))
      .where(
        idempotencyKey === null ? sameRequest : and(sameRequest, eq(undeliveredCalls.idempotencyKey, idempotencyKey)),
      )
      .orderBy(asc(calls.seq))
      .for('update', { of: undeliveredCalls, skipLocked: true });
    const lost = found.find((each) => each.isLost);
    if (!lost) return found.length > 0 ? 'under_way' : undefined;
    await tx.delete(undeliveredCalls).where(eq(undeliveredCalls.callId, lost.id));
    const rowsOfIt = and(
      eq(calls.trialId, trialId),
      eq(calls.attempt, attempt),
      or(eq(calls.id, lost.id), eq(calls.choiceOf, lost.id)),
    );
    await tx.update(calls).set({ replayed: true }).where(rowsOfIt);
    const rows = await tx
      .select({ response: calls.response, completionTokenIds: calls.completionTokenIds })
      .from(calls)
      .where(rowsOfIt)
      .orderBy(asc(calls.seq));
    const replies = rows.map(({ response }) => (response ? parseStored(response) : {}));
    const choices = replies.flatMap(choicesOf);
    const completions = rows.map(({ completionTokenIds }) => completionTokenIds);
    return {
      id: lost.id,
      reply: { ...replies[0], choices },
      prompt: withIds ? ((await readTurn(tx, lost.id))?.prompt ?? null) : null,
      completions,
    };
  });
}
