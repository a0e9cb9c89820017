import { sql } from 'drizzle-orm';
import type { Database } from '../../../store/database.ts';

/** Makes all reservations of a trial as old as if their gateways had died long ago. */
export async function expireReservations(db: Database, trialId: string): Promise<void> {
  await db.execute(
    sql`update trials set reserved = (select jsonb_object_agg(key, value || '{"until": 0}') from jsonb_each(reserved)) where id = ${trialId}`,
  );
}
