import { boolean, index, integer, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { bytes } from './column-types.ts';

/**
 * Completed calls whose reply an agent may not have got whole, and whose client says when it tries again. The statement that records
 * a call adds its row, so that a gateway that dies leaves it behind; the gateway removes it, some moments later and many at once,
 * when the reply was delivered. A retry takes a row away with the reply, so that each reply is replayed at most once (rule 4).
 */
export const undeliveredCalls = pgTable(
  'undelivered_calls',
  {
    callId: uuid('call_id').primaryKey(),
    trialId: text('trial_id').notNull(),
    attempt: integer().notNull(),
    /** SHA-256 of the request's bytes, and the client's own key: by these a retry is known. */
    digest: bytes().notNull(),
    idempotencyKey: text('idempotency_key'),
    /** PostgreSQL's process that recorded the call: it ends soon after the gateway that it works for. */
    backend: integer().notNull(),
    /** The agent's connection ended before the reply did. */
    isCut: boolean('is_cut').notNull().default(false),
    recordedAt: timestamp('recorded_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [index('undelivered_calls_by_request').on(t.trialId, t.digest)],
);
