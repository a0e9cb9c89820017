import { bigserial, boolean, index, integer, jsonb, pgTable, text, timestamp, uuid } from 'drizzle-orm/pg-core';
import { bytes, floats, tokenIds } from './column-types.ts';

export const CONTINUATIONS = ['clean', 'drifted', 'branched'] as const;
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

/** The protocols of `gateway/protocols/all.ts`. The record names them, and the store knows nothing of the gateway. */
export const PROTOCOL_NAMES = ['chat_completions', 'completions', 'messages', 'responses', 'gemini'] as const;
export type ProtocolName = (typeof PROTOCOL_NAMES)[number];

/** Forms in which engines write the experts of a reply: NumPy's file, or bare 32-bit integers. */
export type ExpertsForm = 'npy' | 'int32';

/**
 * Names the blob with the experts that each layer of a mixture chose for each token. Its rows are those of the tokens from `start` on, and
 * the last sampled token has none. Tokens before `start` are those of the call that this one continues.
 */
export type RoutedExperts = { sha256: string; bytes: number; form: ExpertsForm; start: number };

/** One request to the model, written before the agent sees its end. A request for several replies has a row for each. */
export const calls = pgTable(
  'calls',
  {
    id: uuid().primaryKey(),
    /** The order of commits within a trial. */
    seq: bigserial({ mode: 'number' }).notNull(),
    /** This is no foreign key, which would look the trial up again: the recording statement has locked its row. */
    trialId: text('trial_id').notNull(),
    attempt: integer().notNull(),
    /** For the second and later replies of a request: the id of the first one's row. */
    choiceOf: uuid('choice_of'),
    status: text({ enum: CALL_STATUSES }).notNull(),
    /** The reason why the call failed or was cancelled. */
    reason: text(),
    /** Null when the call completed. */
    fault: text({ enum: FAULTS }),
    httpStatus: integer('http_status').notNull(),
    /** The protocol of the agent's request. Request and reply are stored in the engine's form. */
    protocol: text({ enum: PROTOCOL_NAMES }).notNull(),
    stream: boolean().notNull(),
    /** The SHA-256 of the request's bytes, and the client's own key. They identify a retry. */
    digest: bytes(),
    idempotencyKey: text('idempotency_key'),
    /** The client's span that made the request, as its W3C `traceparent` names it. Null when it named none. */
    traceparent: text(),
    /** True when its reply was replayed to a client's retry. The call is then never retracted. */
    replayed: boolean().notNull().default(false),
    /** An earlier call of the attempt, whose row has the part that both share (`store/calls/`). */
    baseId: uuid('base_id'),
    /** The number of ids of the base's prompt and completion that this prompt begins with. */
    sharedIds: integer('shared_ids').notNull().default(0),
    /** The size of the request's body in bytes. Null when a version that did not count it recorded the call. */
    requestBytes: integer('request_bytes'),
    /** The agent's request, shortened, and the reply that it received, as JSON bytes. For a refused request, only the digest and the size are kept. */
    request: bytes().notNull(),
    response: bytes(),
    /** The prompt's ids after the shared ones. */
    promptTokenIds: tokenIds('prompt_token_ids'),
    completionTokenIds: tokenIds('completion_token_ids'),
    logprobs: floats(),
    /** The ids that could be sampled at each token, packed by `packMask`; null when the engine did not return them. */
    samplingMask: bytes('sampling_mask'),
    /** Null when the engine did not return them. */
    routedExperts: jsonb('routed_experts').$type<RoutedExperts>(),
    finishReason: text('finish_reason'),
    /** The sampling settings of the call, after those of the run were applied. */
    sampling: jsonb().$type<Record<string, unknown>>().notNull(),
    engine: text(),
    /** The pool's weight version while the call ran: `{run}@{version}`. */
    weightVersion: text('weight_version'),
    /** The oldest version that sampled a token of the reply. */
    policyVersion: integer('policy_version'),
    /** The version of each part of the reply; null when one version sampled all of it. */
    versionSpans: jsonb('version_spans').$type<VersionSpan[]>(),
    /** The call whose conversation this call continues. */
    parentId: uuid('parent_id'),
    /**
     * Says how the call continues its conversation. `clean`: its prompt begins with exactly the parent's ids. `drifted`: its messages
     * continue the parent's, its ids do not. `branched`: it continues no call (compaction, a sub-agent, an edited history). Null for a
     * trial's first call, and when the prompt's ids are unknown.
     */
    continuation: text({ enum: CONTINUATIONS }),
    /** The reason why the trainer cannot use the call; null when it can. */
    untrainable: text(),
    startedAt: timestamp('started_at', { withTimezone: true }).notNull(),
    firstTokenAt: timestamp('first_token_at', { withTimezone: true }),
    endedAt: timestamp('ended_at', { withTimezone: true }).notNull(),
  },
  (t) => [index('calls_by_trial').on(t.trialId, t.attempt, t.seq)],
);
