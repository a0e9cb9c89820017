import { integer, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { trials } from './trials.ts';

/** The programs of a trial whose output is kept, and the egress proxies of both. */
export const PROGRAMS = ['agent', 'agent network', 'verifier', 'verifier network'] as const;
export type Program = (typeof PROGRAMS)[number];

/** A row keeps what a program of an attempt printed: of each stream the beginning and the end (`core/bounded-text.ts`). If the program runs again, its row is replaced. */
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
