import type { Database } from '../database.ts';

/** Two lists of completed calls: those whose reply the agent received whole, and those whose connection ended before. */
export type DeliveryReport = { whole: readonly string[]; cut: readonly string[] };

/** The statement does not wait for the disk. If a crash of the server loses it, a retry receives the reply of a call that was already delivered. */
const statement = {
  name: 'settle_deliveries',
  text: `
with brief as materialized (
  select set_config('synchronous_commit', 'off', true)
), done as (
  delete from undelivered_calls using brief where call_id = any($1::uuid[]) or recorded_at < now() - interval '1 hour'
)
update undelivered_calls set is_cut = true from brief where call_id = any($2::uuid[])`,
};

/** Records how replies were delivered, and forgets replies that nobody requested again within an hour. Repeating it is harmless. */
export async function settleDeliveries(db: Database, { whole, cut }: DeliveryReport): Promise<void> {
  await db.$client.query({ ...statement, values: [whole, cut] });
}
