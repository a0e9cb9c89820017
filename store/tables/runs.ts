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
  createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
  endedAt: timestamp('ended_at', { withTimezone: true }),
});
