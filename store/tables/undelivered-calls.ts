import { boolean, index, integer, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { bytes } from './column-types.ts';

/**
 * Completed calls whose reply may not have reached the agent whole, and whose client marks its retries. The statement that records a call
 * adds its row, so that the row remains when a gateway dies. The gateway removes rows in batches some moments after their replies were
 * delivered. A retry removes a row together with the reply, so that each reply is replayed at most once (invariant 4).
 */
export const undeliveredCalls = pgTable(
  'undelivered_calls',
  {
    callId: uuid('call_id').primaryKey(),
    trialId: text('trial_id').notNull(),
    attempt: integer().notNull(),
    /** The SHA-256 of the request's bytes, and the client's own key. They identify a retry. */
    digest: bytes().notNull(),
    idempotencyKey: text('idempotency_key'),
    /** The PostgreSQL process that recorded the call. It ends soon after the gateway that it works for. */
    backend: integer().notNull(),
    /** True when the agent's connection ended before the reply did. */
    isCut: boolean('is_cut').notNull().default(false),
    recordedAt: timestamp('recorded_at', { withTimezone: true }).notNull().defaultNow(),
  },
  (t) => [index('undelivered_calls_by_request').on(t.trialId, t.digest)],
);
