import { integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { trials } from './trials.ts';

/** The programs of a trial whose output is kept. */
export const PROGRAMS = ['agent', 'verifier'] as const;
export type Program = (typeof PROGRAMS)[number];

/** What the programs of an attempt printed: the beginning and the end of each stream (`core/bounded-text.ts`). A later run of a program replaces the earlier one. */
export const outputs = pgTable(
  'outputs',
  {
    trialId: text('trial_id')
      .notNull()
      .references(() => trials.id, { onDelete: 'cascade' }),
    attempt: integer().notNull(),
    program: text({ enum: PROGRAMS }).notNull(),
    stdout: text().notNull(),
    stderr: text().notNull(),
  },
  (t) => [primaryKey({ columns: [t.trialId, t.attempt, t.program] })],
);
