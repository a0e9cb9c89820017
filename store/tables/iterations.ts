import { integer, jsonb, pgTable, primaryKey, text, timestamp } from 'drizzle-orm/pg-core';
import { runs } from './runs.ts';

export const TAKE_STATUSES = ['open', 'done', 'superseded'] as const;

/** One take of one iteration. Opening a take supersedes the one before, whose late writers are refused. */
export const iterations = pgTable(
  'iterations',
  {
    runId: text('run_id')
      .notNull()
      .references(() => runs.id, { onDelete: 'cascade' }),
    iteration: integer().notNull(),
    take: integer().notNull(),
    status: text({ enum: TAKE_STATUSES }).notNull().default('open'),
    /** The policy version that this iteration samples from. */
    policyVersion: integer('policy_version').notNull(),
    /** The version that its train step made. */
    trainedVersion: integer('trained_version'),
    /** Seconds by phase: rollout, batch, train, publish. */
    seconds: jsonb().$type<Record<string, number>>().notNull().default({}),
    openedAt: timestamp('opened_at', { withTimezone: true }).notNull().defaultNow(),
    endedAt: timestamp('ended_at', { withTimezone: true }),
  },
  (t) => [primaryKey({ columns: [t.runId, t.iteration, t.take] })],
);
