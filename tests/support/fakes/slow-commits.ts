import { sql } from 'drizzle-orm';
import type { Database } from '../../../store/database.ts';

/** Makes each commit take `ms` longer for each of its calls, as on a slow disk. A commit that has begun ends even if its client is gone. */
export async function slowCommits(db: Database, ms: number): Promise<void> {
  await db.execute(
    sql.raw(
      `create or replace function slow_disk() returns trigger language plpgsql as 'begin perform pg_sleep(${ms / 1000}); return null; end'`,
    ),
  );
  await db.execute(sql`drop trigger if exists slow_disk on calls`);
  await db.execute(
    sql`create constraint trigger slow_disk after insert on calls deferrable initially deferred for each row execute function slow_disk()`,
  );
}
