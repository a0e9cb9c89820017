import { z } from 'zod';
import { isStorable, toStorableText } from '../../../core/json.ts';
import { CLIENT_RUN_ID, GROUP_ID, TRIAL_ID } from '../../../core/ids.ts';
import { MAX_REWARD } from '../../../core/weighted-reward.ts';
import { samplingChoices } from '../../../core/sampling-choices.ts';
import { CALL_STATUSES, CONTINUATIONS, EXHAUSTED, FOUND_BY, OUTCOMES, RUN_STATUSES } from '../../../store/schema.ts';
import { ENGINE_URL, ENGINE_URL_FORMS } from '../../engines/url-forms.ts';

const id = z.string().regex(CLIENT_RUN_ID, 'an id of letters, digits, `.`, `_`, `-`, `/`');
const count = z.int().min(1);
const seconds = z.number().describe('Seconds since the epoch');
const tokens = z.array(z.int());
const object = z.record(z.string(), z.unknown());
const foundBy = z.enum(FOUND_BY);

const budgets = z
  .strictObject({ calls: count, tokens: count, seconds: z.number().gt(0), bytes: count, prompt_tokens: count })
  .partial();

const MOST_METADATA = 16_384;
const fitsRow = (metadata: object): boolean => {
  const text = JSON.stringify(metadata);
  return text.length <= MOST_METADATA && !/\\u(0000|d[89a-f])/.test(text);
};
const metadata = object.refine(fitsRow, `at most ${MOST_METADATA} characters of JSON, without NUL`);

const sampling = samplingChoices.refine(
  isStorable,
  'a text with the character NUL or with half a surrogate pair cannot be stored: remove that character',
);

export const opening = z.strictObject({
  run_id: id.optional(),
  group_id: id.optional(),
  attempt: count.max(999_999_999).optional(),
  sampling: sampling.optional(),
  budgets: budgets.optional(),
  metadata: metadata
    .optional()
    .describe('A JSON object of the client’s own, for example to find the session by; stored unchanged'),
});

export const opened = z.object({
  session_id: z.string(),
  status: z.literal('created'),
  attempt: count,
  api_key: z.string().describe('The API key for the agent; it proves this attempt'),
  base_url: z.string(),
});

export const deletion = z.strictObject({
  session_ids: z.array(z.string().regex(TRIAL_ID, 'the id of a session')).min(1).max(1_000),
});
export const deletedSessions = z.object({ session_ids: z.array(z.string()), status: z.literal('deleted') });

const rewardNumber = z
  .number()
  .min(-MAX_REWARD, 'a finite number that float32 holds')
  .max(MAX_REWARD, 'a finite number that float32 holds');

export const reported = z.strictObject({ reward: rewardNumber });
export const reportedReply = z.object({ session_id: z.string(), attempt: count, reported_reward: z.number() });

const text = z.string().refine(isStorable, 'a text without the character NUL and without half a surrogate pair');

export const claiming = z.strictObject({
  task: text
    .min(1)
    .max(512)
    .describe('The name of the task that all trials of the group do; their rewards are compared with each other'),
  claim: z
    .string()
    .regex(CLIENT_RUN_ID, 'an id of letters, digits, `.`, `_`, `-`, `/`')
    .describe('A new id for each claim. The same id again gets the same group, also when the first reply was lost'),
});
export const claimedGroup = z.object({
  group_id: z.string(),
  task: z.string(),
  trials: z.array(
    z.object({
      trial_id: z.string(),
      trial_index: z.int(),
      attempt: count,
      api_key: z.string().describe('The API key for the trial’s agent'),
      base_url: z.string(),
    }),
  ),
});
export const claimReply = z.object({
  run: z.enum(RUN_STATUSES).describe('The state of the run'),
  reason: z.string().nullable().describe('Why it is blocked or failed'),
  group: claimedGroup.nullable().describe('Null when no group waits now: ask again in a second'),
});

const MOST_REASON = 4_000;

export const reporting = z.strictObject({
  attempt: count,
  reward: z
    .union([
      rewardNumber,
      z
        .record(text.min(1).max(128), rewardNumber)
        .refine((named) => Object.keys(named).length > 0, 'at least one reward'),
    ])
    .nullable()
    .describe('A number, or named numbers, which `reward_weights` of the run weigh. Null: the trial is not trained on'),
  reason: z
    .string()
    .transform((given) => toStorableText(given).slice(0, MOST_REASON))
    .optional()
    .describe('Why there is no reward; a long text is cut'),
});
export const reportingReply = z.object({
  trial_id: z.string(),
  attempt: count,
  outcome: z.enum(OUTCOMES),
  rewards: z.record(z.string(), z.number()).nullable(),
});

const statusOf = z.enum(['created', 'completed']);
export const ended = <S extends string>(status: S) => z.object({ session_id: z.string(), status: z.literal(status) });

export const filter = z.strictObject({
  run_id: id.optional(),
  group_id: z.string().regex(GROUP_ID, 'an id of letters, digits, `.`, `_`, `-`, `/`, `@`').optional(),
  outcome: z.enum(OUTCOMES).optional(),
  status: statusOf.optional(),
  cursor: z.string().regex(TRIAL_ID, 'the `next_cursor` of a page, or the `session_id` of a line').optional(),
});
export const listing = filter.extend({ limit: z.coerce.number().int().min(1).max(500).optional() });
export const exporting = filter.extend({ samples: z.enum(['true', 'false']).optional() });

export const attemptQuery = z.strictObject({
  attempt: z
    .string()
    .regex(/^[1-9]\d{0,8}$/, 'a number from 1')
    .optional(),
});

/**
 * `after`: only calls recorded after this number, which the previous reply named `next`. `since`: only calls that ended later than this.
 * `limit`: at most this many calls, in the order in which they were recorded.
 */
export const recordQuery = attemptQuery.extend({
  after: z
    .string()
    .regex(/^\d{1,15}$/, 'the number that an earlier reply has as `next`')
    .optional(),
  since: z
    .string()
    .regex(/^\d{1,12}(\.\d{1,9})?$/, 'seconds since the epoch')
    .optional(),
  limit: z
    .string()
    .regex(/^[1-9]\d{0,5}$/, 'a number from 1')
    .optional(),
});

const sessionHead = {
  session_id: z.string(),
  run_id: z.string().nullable(),
  group_id: z.string().nullable(),
  attempt: count,
  exhausted: z.enum(EXHAUSTED).nullable(),
  outcome: z.enum(OUTCOMES).nullable(),
  rewards: z.record(z.string(), z.number()).nullable().describe('Given by the verifier'),
  reported_reward: z.number().nullable().describe('Reported by an agent outside any run; nothing trains on it'),
  reason: z.string().nullable(),
  metadata: object.nullable().describe('The metadata with which the client opened the session'),
  created_at: seconds,
};

const usage = z.object({ calls: z.int(), tokens: z.int(), bytes: z.int().describe('Bytes stored in the database') });

export const summary = z.object({
  ...sessionHead,
  trial_index: z.int().nullable(),
  task: z.string().nullable(),
  agent: z.string().nullable(),
  status: statusOf,
  policy_version: z.int().nullable(),
  usage: usage.describe('Usage of the current attempt'),
  completed_at: seconds.nullable(),
});
export const page = z.object({ sessions: z.array(summary), next_cursor: z.string().nullable() });

export const turn = z.object({
  request_messages: z.array(z.unknown()),
  completion_text: z.string(),
  completion_token_ids: tokens,
  completion_logprobs: z.array(z.number()).describe('In nats, one for each token'),
  finish_reason: z.string().nullable(),
  tool_calls: z.array(z.unknown()).nullable(),
  prompt_token_ids: tokens,
  prompt: z.unknown().describe('The prompt of a text completion'),
  tools: z.array(z.unknown()).nullable(),
  left_out: z
    .array(z.unknown())
    .nullable()
    .describe('Blocks, items and tools of the request that the model was not shown'),
  sampling: object.describe('The settings in force, after the run’s own'),
  policy_version: z.int().nullable().describe('The oldest policy version that sampled any of its tokens'),
  weight_version: z.string().nullable(),
  version_spans: z.array(z.object({ version: z.int(), start: z.int(), end: z.int() })).nullable(),
  routed_experts: z
    .object({ sha256: z.string(), bytes: z.int(), form: z.string(), start: z.int() })
    .nullable()
    .describe(
      'Names the bytes with the experts that were chosen for each token, read by `blob`, from the token `start` on',
    ),
  parent_call_id: z.string().nullable(),
  continuation: z.enum(CONTINUATIONS).nullable(),
  attempt: count,
  status: z.enum(CALL_STATUSES),
  reason: z.string().nullable(),
  untrainable: z.string().nullable(),
  call_id: z.string(),
  protocol: z.string(),
  choice_of: z.string().nullable(),
  http_status: z.int(),
  request_bytes: z
    .int()
    .nullable()
    .describe('The size of the request as it came; of a refused request only its size and digest are stored'),
  stream: z.boolean(),
  started_at: seconds,
  first_token_at: seconds.nullable(),
  ended_at: seconds,
});

const refusal = z.object({
  at: z.string(),
  attempt: count,
  status: z.int(),
  code: z.string(),
  request: z.string().describe('The method and path of the request'),
  item: z.string().nullable().describe('The path of the part of the request that is at fault'),
  message: z.string(),
  size: z.int().nullable().describe('The size of the body in bytes'),
  digest: z.string().nullable().describe('SHA-256 of the body, which is not stored'),
});

export const session = z.object({
  ...sessionHead,
  turns: z.array(turn),
  completed: z.boolean(),
  current_attempt: count,
  sampling: samplingChoices,
  budgets,
  usage,
  unfinished: z.array(turn).describe('Calls that failed or were cancelled'),
  next: z.int().describe('`?after=` this number reads the calls that were recorded later'),
  refusals: z
    .object({ count: z.int(), latest: z.array(refusal) })
    .describe('Requests of all attempts that were refused before they became calls: their number, and the latest ones'),
});

export const sample = z.object({
  token_ids: tokens,
  loss_mask: z.array(z.int()),
  logprobs: z.array(z.number()),
  sampling_mask: z
    .array(tokens.nullable())
    .optional()
    .describe('The ids over which each log-probability is normalized, if sampling was truncated'),
  policy_versions: z.array(z.int().nullable()),
  call_ids: z.array(z.string()),
});
export const samples = z.object({ samples: z.array(sample) });
export const sampleLine = z.object({ ...sessionHead, samples: z.array(sample) });

export const health = z.object({
  status: z.literal('ok'),
  mode: z.literal('local'),
  engine_discovery: z
    .array(
      z.object({
        found_by: foundBy,
        status: z.enum(['ok', 'failing']),
        engines: z.int().nullable().describe('The number of engines that were found last; null: none was found yet'),
        failing_since: z.string().optional(),
        reason: z.string().optional().describe('Why it fails; with the admin key only'),
      }),
    )
    .optional()
    .describe('The file and the pods in which this process finds engines, if it follows some'),
});

export const engineChange = z.strictObject({
  url: z
    .string()
    .max(512)
    .regex(ENGINE_URL, ENGINE_URL_FORMS)
    .regex(/^[ -~\u00a0-\u2027\u202a-\uffff]*$/, 'text without control characters')
    .overwrite((url) => url.replace(/\/+$/, '')),
  change: z.enum(['join', 'drain', 'leave']),
});

export const engine = z.object({
  url: z.string(),
  found_by: z
    .enum([...FOUND_BY, 'run'])
    .nullable()
    .describe('The source that names it: `--engine`, the file, the pods of Kubernetes, a person, or a run file'),
  state: z
    .enum(['serving', 'draining', 'left'])
    .describe(
      'Only one that serves gets new calls; one that left is listed while it has calls, or as the last of a run',
    ),
  drained_by_hand: z.boolean(),
  run_id: z.string().nullable().describe('The run that owns it now'),
  weight_version: z.string().nullable(),
  in_rotation: z.boolean(),
  calls_in_flight: z.int().describe('Calls that this process has given to it'),
});
export const engineList = z.object({ engines: z.array(engine) });
export type Engine = z.output<typeof engine>;
export type EngineChange = z.output<typeof engineChange>;

export const failed = z.object({
  error: z.object({ message: z.string(), type: z.string(), param: z.null(), code: z.string() }),
});

export type Session = z.output<typeof session>;
export type Summary = z.output<typeof summary>;
export type Turn = z.output<typeof turn>;
export type Sample = z.output<typeof sample>;
export type SampleLine = z.output<typeof sampleLine>;
