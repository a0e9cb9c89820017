import { integer, jsonb, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

export const RUN_STATUSES = ['running', 'blocked', 'completed', 'failed', 'cancelled'] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** One training run. Its id is the Temporal workflow id. */
export const runs = pgTable('runs', {
  id: text().primaryKey(),
  /** The run file with all defaults filled in. */
  config: jsonb().notNull(),
  status: text({ enum: RUN_STATUSES }).notNull().default('running'),
  /** The reason why the run is blocked or failed, as a sentence for a person. */
  reason: text(),
  /** The number of the next policy version. A number is never used twice in a run. */
  nextVersion: integer('next_version').notNull().default(0),
  /** The time of the last resume. Failures before it no longer count. */
  resumedAt: timestamp('resumed_at', { withTimezone: true }),
  /** The end of its last pause, which a resume ends earlier. A pause that was asked of Temporal alone is not here. */
  pausedUntil: timestamp('paused_until', { withTimezone: true }),
  /** The policy version of another run that this run's version 0 was copied from: `{run}@{version}`. */
  forkedFrom: text('forked_from'),
  /** The finished take whose batch this run trains on again, in its only iteration and under other reward weights: `{run}/{iteration}.{take}`. */
  rescores: text(),
  createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
  endedAt: timestamp('ended_at', { withTimezone: true }),
});
