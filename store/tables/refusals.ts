import { integer, jsonb, pgTable, text } from 'drizzle-orm/pg-core';
import { trials } from './trials.ts';

/** A request that was refused before it became a call. Its body is not kept. */
export type Refusal = {
  /** The time, in ISO 8601. */
  at: string;
  attempt: number;
  status: number;
  code: string;
  request: string;
  /** The path of the invalid part of the request. */
  item: string | null;
  message: string;
  /** The size in bytes; null when the body was not read. */
  size: number | null;
  /** SHA-256 of the body, in hexadecimal. */
  digest: string | null;
};

/** The number of a trial's refused requests, and the latest ones. Each trial has one row of bounded size. */
export const refusals = pgTable('refusals', {
  trialId: text('trial_id')
    .primaryKey()
    .references(() => trials.id, { onDelete: 'cascade' }),
  count: integer().notNull(),
  /** The refusals, the latest first. */
  latest: jsonb().$type<Refusal[]>().notNull(),
});
