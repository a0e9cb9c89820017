import { bigserial, boolean, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { bytes, floats, tokenIds } from './column-types.ts';
import { trials } from './trials.ts';

export const CALL_STATUSES = ['completed', 'failed', 'cancelled'] as const;
export type CallStatus = (typeof CALL_STATUSES)[number];

/** One request to the model, written before the agent sees its end. */
export const calls = pgTable(
  'calls',
  {
    id: uuid().primaryKey(),
    /** The order of commits. */
    seq: bigserial({ mode: 'number' }).notNull(),
    trialId: text('trial_id').notNull().references(() => trials.id, { onDelete: 'cascade' }),
    attempt: integer().notNull(),
    status: text({ enum: CALL_STATUSES }).notNull(),
    /** Why it failed or was cancelled. */
    reason: text(),
    httpStatus: integer('http_status').notNull(),
    stream: boolean().notNull(),
    /** The agent's request and the reply it was given, as JSON bytes. */
    request: bytes().notNull(),
    response: bytes(),
    promptTokenIds: tokenIds('prompt_token_ids'),
    completionTokenIds: tokenIds('completion_token_ids'),
    logprobs: floats(),
    finishReason: text('finish_reason'),
    /** What was in force, after the run's own settings. */
    sampling: jsonb().$type<Record<string, unknown>>().notNull(),
    engine: text(),
    /** The pool's version label while the call ran: `{run}@{version}`. */
    policyLabel: text('policy_label'),
    policyVersion: integer('policy_version'),
    /** Null when trainable, else the reason why not. */
    untrainable: text(),
    startedAt: timestamp('started_at', { withTimezone: true }).notNull(),
    firstTokenAt: timestamp('first_token_at', { withTimezone: true }),
    endedAt: timestamp('ended_at', { withTimezone: true }).notNull(),
  },
  (t) => [index('calls_by_trial').on(t.trialId, t.attempt, t.seq)],
);
