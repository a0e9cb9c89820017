import { pgTable, primaryKey, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

/** Tasks that a run no longer samples because their groups failed several times in a row. */
export const quarantinedTasks = pgTable(
  'quarantined_tasks',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    task: text().notNull(),
    /** A sentence for a person. */
    reason: text().notNull(),
    at: timestamp({ withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [primaryKey({ columns: [t.runId, t.task] })],
);
