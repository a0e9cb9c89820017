import { pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { bytes } from './column-types.ts';
import { trials } from './trials.ts';

/** Bytes that an engine returned with a reply for the trainer. A trial has each once, by its SHA-256. */
export const blobs = pgTable(
  'blobs',
  {
    trialId: text('trial_id')
      .notNull()
      .references(() => trials.id, { onDelete: 'cascade' }),
    digest: bytes().notNull(),
    bytes: bytes().notNull(),
  },
  (t) => [primaryKey({ columns: [t.trialId, t.digest] })],
);
