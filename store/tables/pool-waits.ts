import { pgTable, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** The runs that wait for engines. They get them in the order in which they began to wait. */
export const poolWaits = pgTable('pool_waits', {
  runId: text('run_id')
    .primaryKey()
    .references(() => runs.id, { onDelete: 'cascade' }),
  /** The deployment's pool, or the engines that the run file names. */
  pool: text().notNull(),
  since: timestamp({ withTimezone: true }).notNull().defaultNow(),
  /** The time of the last try. A run that has not tried for a while does not wait any more. */
  seenAt: timestamp('seen_at', { withTimezone: true }).notNull().defaultNow(),
});
