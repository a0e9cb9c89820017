import { OUTCOMES, type Outcome } from '../../core/outcomes.ts';
import type { Sampling } from '../../core/sampling-choices.ts';
import { bigint, doublePrecision, index, integer, jsonb, pgTable, text, timestamp } from 'drizzle-orm/pg-core';

export { OUTCOMES, type Outcome };

export const TRIAL_STATUSES = ['created', 'completed', 'deleted'] as const;

/** Reasons of a refused call that make the trial's outcome `truncated`, also if its agent goes on with a shorter request. */
export const EXHAUSTED = ['budget_exhausted', 'context_length_exceeded'] as const;
export type ExhaustedLimit = (typeof EXHAUSTED)[number];

export type { Sampling };
export type Budgets = {
  calls?: number;
  /** Sampled tokens. */
  tokens?: number;
  seconds?: number;
  /** The bytes stored in the database: requests, replies and ids, shortened, and about 1 KiB for each row. */
  bytes?: number;
  /** The most tokens of one call's prompt: a run's `max_prompt_length`. */
  prompt_tokens?: number;
};

/**
 * The reservation of a call under way: the tokens that it may still sample, and the time until which it holds, in seconds since the epoch
 * by PostgreSQL's clock.
 */
export type StoredReservation = { tokens: number; until: number };

/** One agent's work on one task. The row's lock is the fence between recording (FOR NO KEY UPDATE) and sealing (FOR UPDATE). */
export const trials = pgTable(
  'trials',
  {
    id: text().primaryKey(),
    /** Null for a session opened by hand, outside any run. */
    runId: text('run_id'),
    groupId: text('group_id'),
    /** The trial's index in its group, counted from 0. */
    trialIndex: integer('trial_index'),
    task: text(),
    agent: text(),
    /** The values by which the client that opened the trial finds it again. */
    metadata: jsonb().$type<Record<string, unknown>>(),
    /** The only attempt whose calls are accepted, counted from 1. */
    attempt: integer().notNull().default(1),
    status: text({ enum: TRIAL_STATUSES }).notNull().default('created'),
    /** The run's sampling settings. A setting that is absent is neutral in a run; outside any run the agent chooses it. */
    sampling: jsonb().$type<Sampling>().notNull().default({}),
    budgets: jsonb().$type<Budgets>().notNull().default({}),
    /** The current attempt's number of rows in `calls`, and what it has used of its budgets. The recording statement counts them. */
    recorded: integer().notNull().default(0),
    usedCalls: integer('used_calls').notNull().default(0),
    usedTokens: bigint('used_tokens', { mode: 'number' }).notNull().default(0),
    usedBytes: bigint('used_bytes', { mode: 'number' }).notNull().default(0),
    /** The budgets reserved by calls under way of the current attempt, by call; null when nothing was ever reserved. */
    reserved: jsonb().$type<Record<string, StoredReservation>>(),
    /** The limit that stopped the agent: its budget or the model's context. */
    exhausted: text({ enum: EXHAUSTED }),
    attemptOpenedAt: timestamp('attempt_opened_at', { withTimezone: true }).notNull().defaultNow(),
    policyVersion: integer('policy_version'),
    /** The take whose batch has its samples or counts it as dropped. It does not count when that take is superseded. */
    batchIteration: integer('batch_iteration'),
    batchTake: integer('batch_take'),
    outcome: text({ enum: OUTCOMES }),
    /** Named rewards: of the verifier, or with external rollouts of the program that claimed the group. */
    rewards: jsonb().$type<Record<string, number>>(),
    /** The parts of `rewards` that each turn earned, for the names that the verifier gave turn by turn. Null when there are none. */
    turnRewards: jsonb('turn_rewards').$type<Record<string, number[]>>(),
    /** The reward that the agent of a session outside any run reports for its current attempt. Nothing trains on it. */
    reportedReward: doublePrecision('reported_reward'),
    reason: text(),
    createdAt: timestamp('created_at', { withTimezone: true }).notNull().defaultNow(),
    completedAt: timestamp('completed_at', { withTimezone: true }),
    sealedAt: timestamp('sealed_at', { withTimezone: true }),
  },
  (t) => [
    index('trials_by_group').on(t.groupId),
    index('trials_by_run').on(t.runId),
    index('trials_by_age').on(t.createdAt, t.id),
  ],
);
