import { fileURLToPath } from 'node:url';
import { sql } from 'drizzle-orm';
import { migrate as apply } from 'drizzle-orm/node-postgres/migrator';
import { openDatabase } from '../database.ts';

const migrationsFolder = fileURLToPath(new URL('../../migrations', import.meta.url));

/** Brings a database's tables up to date. Several processes may start it at once: one applies, the others wait. */
export async function migrate(url: string): Promise<void> {
  const db = openDatabase(url, { maxConnections: 2 });
  try {
    await db.transaction(async (tx) => {
      await tx.execute(sql`select pg_advisory_xact_lock(hashtext('trialgate migrations'))`);
      await apply(db, { migrationsFolder });
    });
  } finally {
    await db.$client.end();
  }
}
