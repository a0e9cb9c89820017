import { integer, pgTable, primaryKey, real, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** A row for each replica that confirmed a version: the weight version that it reported, the checksum of its weights, its canary. */
export const publications = pgTable(
  'publications',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    version: integer().notNull(),
    replica: text().notNull(),
    weightVersion: text('weight_version').notNull(),
    checksum: text().notNull(),
    /** The mean absolute difference from the trainer's log-probabilities, in nats. Old rows have the largest difference. */
    canaryDifference: real('canary_difference').notNull(),
    confirmedAt: timestamp('confirmed_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.version, t.replica] })],
);
