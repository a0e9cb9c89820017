import { bigserial, index, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/**
 * Calls that gateways have under way which share no memory: by these a client's retry finds the try that it must wait for.
 * Each says again and again that it still is; what died with its gateway is soon nobody's.
 */
export const callsUnderWay = pgTable(
  'calls_under_way',
  {
    /** The order in which they came. */
    id: bigserial({ mode: 'number' }).primaryKey(),
    /** The trial, its attempt, and what makes two requests the same. */
    key: text().notNull(),
    until: timestamp({ withTimezone: true }).notNull(),
  },
  (t) => [index('calls_under_way_by_key').on(t.key, t.id)],
);
