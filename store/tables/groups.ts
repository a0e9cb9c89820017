import { index, integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

export const GROUP_KINDS = ['train', 'eval'] as const;

/** The trials of one task in one take. Its id is its workflow's id: `{run}/{iteration}.{take}/{ordinal}`. */
export const groups = pgTable(
  'groups',
  {
    id: text().primaryKey(),
    runId: text('run_id').notNull().references(() => runs.id, { onDelete: 'cascade' }),
    kind: text({ enum: GROUP_KINDS }).notNull(),
    /** Null for an evaluation. */
    iteration: integer(),
    take: integer(),
    ordinal: integer().notNull(),
    task: text().notNull(),
    policyVersion: integer('policy_version').notNull(),
    openedAt: timestamp('opened_at', { withTimezone: true }).notNull().defaultNow(),
    endedAt: timestamp('ended_at', { withTimezone: true }),
  },
  (t) => [index('groups_by_take').on(t.runId, t.iteration, t.take)],
);
