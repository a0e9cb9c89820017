import { inArray, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { calls, trials } from '../schema.ts';

/**
 * Marks calls as failed whose commit came too late, and frees what they used of their trials' budgets: their agents were told that they
 * failed and got no other answer since. Repeating it is harmless.
 */
export async function retractCalls(db: Database, ids: readonly string[]): Promise<void> {
  await db.transaction(async (tx) => {
    const theirTrials = tx
      .selectDistinct({ id: calls.trialId })
      .from(calls)
      .where(inArray(calls.id, [...ids]));
    // Locks the trials first, as every other statement does: two of them wait for each other in one order and never deadlock.
    const locked = await tx
      .select({ id: trials.id })
      .from(trials)
      .where(inArray(trials.id, theirTrials))
      .orderBy(trials.id)
      .for('no key update');
    const ofTrials = sql`trial_id = any(${sql.param(locked.map(({ id }) => id))}::text[])`;
    const given = sql`${sql.param([...ids])}::uuid[]`;
    await tx.execute(sql`
with theirs as (
  select id, trial_id, attempt, status, choice_of, coalesce(length(completion_token_ids), 0) / 4 as tokens from calls
  where ${ofTrials} and (id = any(${given}) or choice_of = any(${given})) and not replayed and reason is distinct from 'committed_too_late'
), marked as (
  update calls set status = 'failed', reason = 'committed_too_late', fault = 'store' from theirs where calls.id = theirs.id
), used as (
  select trial_id, attempt, sum(tokens) as tokens, count(*) filter (where status <> 'failed' and choice_of is null) as calls
  from theirs group by trial_id, attempt
)
update trials set used_calls = used_calls - used.calls, used_tokens = used_tokens - used.tokens
from used where trials.id = used.trial_id and trials.attempt = used.attempt`);
  });
}
