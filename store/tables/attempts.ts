import { integer, jsonb, pgTable, primaryKey, text, timestamp } from 'drizzle-orm/pg-core';
import { OUTCOMES, trials } from './trials.ts';

/** The history of a trial's attempts: why each one ended, so that no failure disappears. */
export const attempts = pgTable(
  'attempts',
  {
    trialId: text('trial_id').notNull().references(() => trials.id, { onDelete: 'cascade' }),
    attempt: integer().notNull(),
    outcome: text({ enum: OUTCOMES }),
    reason: text(),
    /** The worker that ran its sandbox. */
    host: text(),
    /** Seconds by phase: sandbox, agent, verify. */
    seconds: jsonb().$type<Record<string, number>>().notNull().default({}),
    openedAt: timestamp('opened_at', { withTimezone: true }).notNull().defaultNow(),
    endedAt: timestamp('ended_at', { withTimezone: true }),
  },
  (t) => [primaryKey({ columns: [t.trialId, t.attempt] })],
);
