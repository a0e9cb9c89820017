import { eq, sql } from 'drizzle-orm';
import type { Database } from '../database.ts';
import { toStorable } from '../../core/json.ts';
import { refusals, type Refusal } from '../schema.ts';

/** A trial's row keeps at most so many refusals. */
export const MOST_REFUSALS = 20;

export type RefusalSummary = { count: number; latest: Refusal[] };

/** Adds refusals to a trial's row, the latest first, and keeps the latest ones. */
export async function addRefusals(db: Database, trialId: string, { count, latest }: RefusalSummary): Promise<void> {
  const added = toStorable(latest.slice(0, MOST_REFUSALS));
  const kept = sql`(
    select jsonb_agg(each.value order by each.place)
    from jsonb_array_elements(excluded.latest || ${refusals.latest}) with ordinality as each(value, place)
    where each.place <= ${MOST_REFUSALS})`;
  await db
    .insert(refusals)
    .values({ trialId, count, latest: sql`${added}::jsonb` })
    .onConflictDoUpdate({
      target: refusals.trialId,
      set: { count: sql`${refusals.count} + excluded.count`, latest: kept },
    });
}

/** Returns null when no request of the trial was refused. */
export async function readRefusals(db: Database, trialId: string): Promise<RefusalSummary | null> {
  const [row] = await db
    .select({ count: refusals.count, latest: refusals.latest })
    .from(refusals)
    .where(eq(refusals.trialId, trialId));
  return row ?? null;
}
