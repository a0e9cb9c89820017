import { bigserial, index, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/**
 * The calls that are under way at all gateways, which share no memory. A client's retry finds its earlier try here and waits for it. A
 * gateway renews its rows; the rows of a dead gateway expire.
 */
export const callsUnderWay = pgTable(
  'calls_under_way',
  {
    /** Calls with a smaller id came earlier. */
    id: bigserial({ mode: 'number' }).primaryKey(),
    /** The trial, its attempt and the digest that equal requests share. */
    key: text().notNull(),
    until: timestamp({ withTimezone: true }).notNull(),
  },
  (t) => [index('calls_under_way_by_key').on(t.key, t.id)],
);
