import { integer, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

/** Facts about the whole database. The table has one row, whose id is 1. */
export const deployment = pgTable('deployment', {
  id: integer().primaryKey().default(1),
  /** The fingerprint of the secret that derives the attempts' keys (`fingerprintOf`). */
  secretFingerprint: text('secret_fingerprint').notNull(),
  createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
});
