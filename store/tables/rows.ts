import { integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** The rows of data that are a run's tasks. They are read once, so that a file that changes later does not change the run. */
export const rows = pgTable(
  'rows',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    /** The source that the row comes from (`rowsLabel`). */
    source: text().notNull(),
    /** The number of the row in its source, from 0. */
    index: integer().notNull(),
    /** The row as JSON. */
    data: text().notNull(),
    /** The agent that the row names itself. */
    agent: text(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.source, t.index] })],
);
