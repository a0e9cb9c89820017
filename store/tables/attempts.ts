import { bigint, integer, jsonb, pgTable, primaryKey, text, timestamp } from 'drizzle-orm/pg-core';
import { OUTCOMES, trials } from './trials.ts';

/** The evidence that an attempt ended without fault of its agent: an event of its host, its gateway, the store, or an engine. */
export const EVIDENCE = ['host', 'gateway', 'store', 'engine'] as const;
export type Evidence = (typeof EVIDENCE)[number];

/** The history of a trial's attempts: why each one ended, so that no failure disappears. */
export const attempts = pgTable(
  'attempts',
  {
    trialId: text('trial_id')
      .notNull()
      .references(() => trials.id, { onDelete: 'cascade' }),
    attempt: integer().notNull(),
    outcome: text({ enum: OUTCOMES }),
    reason: text(),
    /** Null when nothing showed who caused the end. When an agent's end counts as an infrastructure error, there is always evidence. */
    evidence: text({ enum: EVIDENCE }),
    /** The worker that runs its sandbox, from the opening on. Null for sessions and claimed trials, whose agents run elsewhere. */
    host: text(),
    /** Seconds by phase: sandbox, agent, verify. */
    seconds: jsonb().$type<Record<string, number>>().notNull().default({}),
    /** The most bytes that its sandbox was seen to have on the disk while its agent ran. Null: the agent ended before they were counted. */
    diskBytes: bigint('disk_bytes', { mode: 'number' }),
    openedAt: timestamp('opened_at', { withTimezone: true }).notNull().defaultNow(),
    endedAt: timestamp('ended_at', { withTimezone: true }),
  },
  (t) => [primaryKey({ columns: [t.trialId, t.attempt] })],
);
