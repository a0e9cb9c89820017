import { integer, jsonb, pgTable, primaryKey, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** The immutable file that one train step read: `batches/{sha256}.arrow`. */
export const batches = pgTable(
  'batches',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    iteration: integer().notNull(),
    take: integer().notNull(),
    sha256: text().notNull(),
    path: text().notNull(),
    samples: integer().notNull(),
    /** The number of trials that the samples come from. */
    trials: integer().notNull(),
    /** The batch's metrics: its trials and tokens, and those that were dropped (docs/show.md). */
    metrics: jsonb().$type<Record<string, number>>().notNull().default({}),
    createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.iteration, t.take] })],
);
