import { fileURLToPath } from 'node:url';
import { sql } from 'drizzle-orm';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { migrate as apply } from 'drizzle-orm/node-postgres/migrator';
import { openDatabase } from '../database.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Transaction } from './transaction.ts';

const migrationsFolder = fileURLToPath(new URL('../../migrations', import.meta.url));

/**
 * Brings a database's tables up to date. When several processes start it at the same time, one applies the migrations and the others wait.
 * @throws TrialgateError `missing_prerequisite` when the tables come from migrations that are not ours
 */
export async function migrate(url: string): Promise<void> {
  const db = openDatabase(url, { maxConnections: 2 });
  try {
    await db.transaction(async (tx) => {
      await tx.execute(sql`select pg_advisory_xact_lock(hashtext('trialgate migrations'))`);
      await requireOurMigrations(tx);
      await apply(db, { migrationsFolder });
    });
  } finally {
    await db.$client.end();
  }
}

/**
 * Refuses tables that come from other migrations. Before its first release Trialgate changed its first migration in place, so nothing
 * leads from those tables to these.
 */
async function requireOurMigrations(tx: Transaction): Promise<void> {
  const { rows: found } = await tx.execute<{ exists: boolean }>(
    sql`select to_regclass('drizzle.__drizzle_migrations') is not null as exists`,
  );
  if (!found[0]?.exists) return;
  const { rows: applied } = await tx.execute<{ hash: string }>(
    sql`select hash from drizzle.__drizzle_migrations order by created_at, id`,
  );
  const ours = readMigrationFiles({ migrationsFolder });
  if (applied.every(({ hash }, i) => ours[i] === undefined || ours[i].hash === hash)) return;
  throw new TrialgateError(
    'missing_prerequisite',
    'the tables of this database were made by a version of Trialgate whose migrations differ, so they cannot be brought up to date and were left as they are. ' +
      'Export what you need with that version (`npx trialgate show RUN --json`, or `GET /sessions/export` of its gateway), then let this one start with an empty database: ' +
      'another TRIALGATE_HOME, or another TRIALGATE_DATABASE_URL',
  );
}
