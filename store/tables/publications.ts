import { integer, pgTable, primaryKey, real, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** What each replica confirmed of each version: its label read back, its weights' checksum, its canary. */
export const publications = pgTable(
  'publications',
  {
    runId: text('run_id').notNull().references(() => runs.id, { onDelete: 'cascade' }),
    version: integer().notNull(),
    replica: text().notNull(),
    label: text().notNull(),
    checksum: text().notNull(),
    /** The mean absolute difference from the trainer's log-probabilities, in nats. Old rows have the largest difference. */
    canaryDifference: real('canary_difference').notNull(),
    confirmedAt: timestamp('confirmed_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.version, t.replica] })],
);
