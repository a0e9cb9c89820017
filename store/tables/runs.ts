import { integer, jsonb, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

export const RUN_STATUSES = ['running', 'blocked', 'completed', 'failed', 'cancelled'] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** One training run. Its id is the Temporal workflow id. */
export const runs = pgTable('runs', {
  id: text().primaryKey(),
  /** The run file with every default filled in. */
  config: jsonb().notNull(),
  status: text({ enum: RUN_STATUSES }).notNull().default('running'),
  /** Why it is blocked or failed, as a sentence for a person. */
  reason: text(),
  /** Next policy version to hand out: versions are never reused within a run. */
  nextVersion: integer('next_version').notNull().default(0),
  /** When a person last let it go on: what failed before counts no more. */
  resumedAt: timestamp('resumed_at', { withTimezone: true }),
  /** The policy version of another run that its version 0 is: `{run}@{version}`. */
  forkedFrom: text('forked_from'),
  /** The finished take whose batch its only iteration trains on again, under other reward weights: `{run}/{iteration}.{take}`. */
  rescores: text(),
  createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
  endedAt: timestamp('ended_at', { withTimezone: true }),
});
