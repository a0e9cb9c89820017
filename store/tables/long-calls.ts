import { boolean, index, integer, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';

/**
 * The calls that have been under way for several seconds, as their gateways last saw them. They show how long a trial waits for its engine before
 * the call has a record. A gateway renews its rows and removes each at its call's end; the rows of a dead gateway expire.
 */
export const longCalls = pgTable(
  'long_calls',
  {
    callId: uuid('call_id').primaryKey(),
    trialId: text('trial_id').notNull(),
    attempt: integer().notNull(),
    /** Null for a trial outside any run. */
    runId: text('run_id'),
    /** Null while the call has no engine yet. */
    engine: text(),
    stream: boolean().notNull(),
    /** True when a grammar binds the reply, which may take the engine long by itself. */
    constrained: boolean().notNull(),
    startedAt: timestamp('started_at', { withTimezone: true }).notNull(),
    firstTokenAt: timestamp('first_token_at', { withTimezone: true }),
    /** The sampled tokens that have come. */
    tokens: integer().notNull().default(0),
    seenAt: timestamp('seen_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [index('long_calls_by_trial').on(t.trialId, t.attempt), index('long_calls_by_run').on(t.runId)],
);
