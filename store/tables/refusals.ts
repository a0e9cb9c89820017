import { integer, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { trials } from './trials.ts';

/** A request that was refused before it became a call. Its body is not kept. */
export type Refusal = {
  /** ISO 8601. */
  at: string;
  attempt: number;
  status: number;
  code: string;
  request: string;
  /** The part of the request that is at fault, as a path. */
  item: string | null;
  message: string;
  /** In bytes; null where the body was not read. */
  size: number | null;
  /** SHA-256 of the body, in hexadecimal. */
  digest: string | null;
};

/** How many requests of a trial were refused, and the last ones: one row a trial, of bounded size. */
export const refusals = pgTable('refusals', {
  trialId: text('trial_id').primaryKey().references(() => trials.id, { onDelete: 'cascade' }),
  count: integer().notNull(),
  /** The latest first. */
  latest: jsonb().$type<Refusal[]>().notNull(),
});
