import { bigserial, boolean, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { bytes, floats, tokenIds } from './column-types.ts';

export const CONTINUATIONS = ['clean', 'realigned', 'forked'] as const;
export type Continuation = (typeof CONTINUATIONS)[number];

/** Tokens `start` to `end` (exclusive) of a completion, and the policy version that sampled them. */
export type VersionSpan = { version: number; start: number; end: number };

export const CALL_STATUSES = ['completed', 'failed', 'cancelled'] as const;
export type CallStatus = (typeof CALL_STATUSES)[number];

/**
 * The party that caused a call to fail. `request`: only this request fails; another one would be answered. `engine`: the engine was
 * lost, received new weights, or reports itself unhealthy. `gateway` and `store`: parts of this deployment. `client`: it hung up.
 */
export const FAULTS = ['request', 'engine', 'gateway', 'store', 'client'] as const;
export type Fault = (typeof FAULTS)[number];

export const PROTOCOL_NAMES = ['chat_completions', 'completions', 'messages', 'responses'] as const;
export type ProtocolName = (typeof PROTOCOL_NAMES)[number];

/** One request to the model, written before the agent sees its end. A request for several replies has a row for each. */
export const calls = pgTable(
  'calls',
  {
    id: uuid().primaryKey(),
    /** The order of commits within a trial. */
    seq: bigserial({ mode: 'number' }).notNull(),
    /** Its row is locked by the statement that records: a foreign key would only look it up again. */
    trialId: text('trial_id').notNull(),
    attempt: integer().notNull(),
    /** Of a request's second reply and those after it: the row of its first one. */
    choiceOf: uuid('choice_of'),
    status: text({ enum: CALL_STATUSES }).notNull(),
    /** Why it failed or was cancelled. */
    reason: text(),
    /** Null when the call completed. */
    fault: text({ enum: FAULTS }),
    httpStatus: integer('http_status').notNull(),
    /** What the agent spoke; request and reply are stored as the engine's. */
    protocol: text({ enum: PROTOCOL_NAMES }).notNull(),
    stream: boolean().notNull(),
    /** SHA-256 of the request's bytes, and the client's own key: by these a retry is known. */
    digest: bytes(),
    idempotencyKey: text('idempotency_key'),
    /** Whether a client's second try was given its reply: it stands then. */
    replayed: boolean().notNull().default(false),
    /** An earlier call of the attempt: what this one shares with it is stored there (`store/calls/`). */
    baseId: uuid('base_id'),
    /** How many ids of the base's prompt and completion this prompt begins with. */
    sharedIds: integer('shared_ids').notNull().default(0),
    /** The size of the request's body in bytes. Null when a version that did not count it recorded the call. */
    requestBytes: integer('request_bytes'),
    /** The agent's request, shortened, and the reply that it received, as JSON bytes. For a refused request, only the digest and the size are kept. */
    request: bytes().notNull(),
    response: bytes(),
    /** After the shared ones. */
    promptTokenIds: tokenIds('prompt_token_ids'),
    completionTokenIds: tokenIds('completion_token_ids'),
    logprobs: floats(),
    /** The ids that could be sampled at each token, packed by `packMask`; null when the engine did not return them. */
    samplingMask: bytes('sampling_mask'),
    finishReason: text('finish_reason'),
    /** What was in force, after the run's own settings. */
    sampling: jsonb().$type<Record<string, unknown>>().notNull(),
    engine: text(),
    /** The pool's version label while the call ran: `{run}@{version}`. */
    policyLabel: text('policy_label'),
    /** The oldest that sampled any of its tokens. */
    policyVersion: integer('policy_version'),
    /** Where weights changed within the reply; else null. */
    versionSpans: jsonb('version_spans').$type<VersionSpan[]>(),
    /** The call whose conversation this one goes on with. */
    parentId: uuid('parent_id'),
    /**
     * Null for a trial's first call, and where no prompt came to be known. `clean`: the prompt starts with exactly the parent's ids. `realigned`: its messages go
     * on from the parent's, its ids do not. `forked`: it goes on from none (compaction, a sub-agent, an edited history).
     */
    continuation: text({ enum: CONTINUATIONS }),
    /** Null when trainable, else the reason why not. */
    untrainable: text(),
    startedAt: timestamp('started_at', { withTimezone: true }).notNull(),
    firstTokenAt: timestamp('first_token_at', { withTimezone: true }),
    endedAt: timestamp('ended_at', { withTimezone: true }).notNull(),
  },
  (t) => [index('calls_by_trial').on(t.trialId, t.attempt, t.seq)],
);
