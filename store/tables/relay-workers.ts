import { bigserial, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/** The gateway that holds the connection of each relay worker. The lease ends when that gateway does not renew it. */
export const relayWorkers = pgTable('relay_workers', {
  id: text().primaryKey(),
  /** The worker as a replica: `relay:ID`, and before it the kind of its engine. */
  url: text().notNull(),
  /** The address at which other gateways reach the one that holds the connection. */
  gateway: text().notNull(),
  /** Names the worker's process. */
  session: text().notNull(),
  /** Rises whenever a gateway takes the worker, so that a request for an earlier owner is refused. */
  epoch: bigserial({ mode: 'number' }).notNull(),
  renewedAt: timestamp('renewed_at', { withTimezone: true }).notNull().defaultNow(),
});
