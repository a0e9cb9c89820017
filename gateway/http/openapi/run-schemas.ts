import { z } from 'zod';
import { EVALUATION_ID, GROUP_ID, RUN_ID } from '../../../core/ids.ts';
import { termsOf } from '../search-terms.ts';
import { CALL_STATUSES, CONTINUATIONS, DROPPED, GROUP_KINDS, OUTCOMES, RUN_STATUSES } from '../../../store/schema.ts';
import { TAKE_STATUSES } from '../../../store/tables/iterations.ts';

const seconds = z.number().describe('Seconds since the epoch');
const durations = z.record(z.string(), z.number()).describe('Seconds by phase');
const numbers = z.record(z.string(), z.number());
const whole = (most: number) => z.coerce.number().int().min(0).max(most).describe(`A number from 0 to ${most}`);
const limit = (most: number) => z.coerce.number().int().min(1).max(most).optional();

export const runsQuery = z.strictObject({
  cursor: z.string().regex(RUN_ID, 'the `next_cursor` of a page').optional(),
  limit: limit(200),
});
export const iterationsQuery = z.strictObject({ from: whole(1_000_000_000).optional(), limit: limit(500) });
/** An empty text is no number. */
const reward = z.string().trim().min(1, 'expected a number').pipe(z.coerce.number()).optional();
const trialChoice = {
  outcome: z
    .enum([...OUTCOMES, 'open'])
    .optional()
    .describe('Only trials with this outcome; `open` while they run'),
  agent: z
    .string()
    .max(1_000)
    .regex(/^[^\0]+$/, 'expected the name of an agent')
    .optional()
    .describe('Only trials of the agent with this name'),
  reward_min: reward.describe('Only trials with this weighted reward or more'),
  reward_max: reward.describe('Only trials with this weighted reward or less'),
};
type Rewards = { reward_min?: number; reward_max?: number };
const areInOrder = ({ reward_min: least = -Infinity, reward_max: most = Infinity }: Rewards): boolean => least <= most;
const NOT_IN_ORDER = { path: ['reward_min'], message: 'is more than reward_max, so no trial has such a reward' };

export const groupsQuery = z
  .strictObject({
    ...trialChoice,
    iteration: whole(1_000_000_000).optional(),
    take: whole(1_000_000_000).optional(),
    group_id: z.string().regex(GROUP_ID, 'the id of a group').optional(),
    evaluation: z.string().regex(EVALUATION_ID, '`eval@{version}` or `eval@{version}.{n}`').optional(),
    dropped: z.enum(DROPPED).optional(),
    offset: whole(1_000_000).optional(),
    limit: limit(200),
  })
  .refine(areInOrder, NOT_IN_ORDER);

export const iterationPath = z.strictObject({ iteration: whole(1_000_000_000) });
export const timelineQuery = z
  .strictObject({
    ...trialChoice,
    take: whole(1_000_000_000).optional(),
    offset: whole(1_000_000).optional(),
    limit: limit(500),
  })
  .refine(areInOrder, NOT_IN_ORDER);

const runHead = {
  run_id: z.string(),
  status: z.enum(RUN_STATUSES),
  reason: z.string().nullable().describe('Why it is blocked or failed'),
  created_at: seconds,
  ended_at: seconds.nullable(),
  forked_from: z.string().nullable(),
  rescores: z.string().nullable(),
};
export const listedRun = z.object({
  ...runHead,
  iteration: z.int().nullable().describe('The newest iteration; null before the first'),
  rewards: z.array(z.number()).describe('The mean rewards of the newest 100 batches, the oldest first'),
});
export const runList = z.object({
  runs: z.array(listedRun),
  next_cursor: z.string().nullable(),
  is_operable: z.boolean().describe('True where `POST /runs` starts runs'),
});

export const runDetails = z.object({
  ...runHead,
  config: z.unknown().describe('The run file with every default filled in'),
  paused_until: seconds
    .nullable()
    .describe('The end of its pause; null: a command or the page has asked for none, or it is over'),
  is_operable: z.boolean().describe('True where `POST /runs/{run_id}` changes runs'),
  evaluations: z.array(
    z.object({
      id: z.string(),
      policy_version: z.int(),
      trials: z.int(),
      scored: z.int(),
      reward_mean: z.number().nullable(),
      pass_at: numbers.describe(
        'pass@k for k = 1, 2, 4, … up to the fewest scored trials of a task: the share of tasks of which at least one of k trials has a reward of 1 or more, estimated without bias; empty before a trial is scored',
      ),
    }),
  ),
  quarantined: z.array(z.object({ task: z.string(), reason: z.string(), at: seconds })),
});

/** The text of a run file. None needs as much. */
const runFile = z.string().max(65_536, 'at most 65,536 characters');
/** The run itself refuses what it cannot do, so that a limit is written once. */
export const runVerb = z
  .discriminatedUnion('verb', [
    z.strictObject({ verb: z.literal('pause'), seconds: z.number().optional().describe('A day if absent') }),
    z.strictObject({
      verb: z.literal('resume'),
      retry_failed: z.boolean().optional().describe('Failed trials of the open take run again'),
    }),
    z.strictObject({ verb: z.literal('stop') }),
    z.strictObject({ verb: z.literal('cancel') }),
    z.strictObject({
      verb: z.literal('redo'),
      iteration: z.int().min(0).optional().describe('Refused when it is not the last one'),
      take: z.int().min(1).optional().describe('Refused when it is not the last one'),
    }),
    z.strictObject({
      verb: z.literal('fork'),
      version: z.int().min(0).describe('The policy version that the new run begins from'),
      run_id: z.string().regex(RUN_ID, 'a name of a run').optional().describe('The name of the new run'),
      iterations: z.int().min(1).optional().describe('As many as the other run’s if absent'),
      file: runFile
        .optional()
        .describe('Settings of a run file as YAML or JSON, in place of the other run’s; what it leaves out stays'),
    }),
  ])
  .describe('What the run is to do, as the command of that name');
/** Control characters of a name could hide what a message says. */
const fileName = z
  .string()
  .min(1)
  .max(200)
  .regex(/^\P{C}+$/u, 'a file’s name without control characters');
export const runStart = z
  .strictObject({
    file: runFile.describe('The text of a run file, YAML or JSON'),
    file_name: fileName.optional().describe('What messages call the file, and the default name of the run'),
    as: z
      .string()
      .regex(RUN_ID, 'a name of a run')
      .optional()
      .describe('An earlier run: the new one may have the same entries'),
    run_id: z.string().regex(RUN_ID, 'a name of a run').optional().describe('The name of the new run'),
  })
  .describe('A run to start, as `npx trialgate train FILE` does');
export const startLine = z
  .object({
    progress: z.string().optional().describe('What was done, or a warning'),
    run_id: z.string().optional().describe('The run, in the last line if it was started'),
    message: z.string().optional().describe('What the command prints when it has started the run'),
    error: z
      .object({ status: z.int(), code: z.string(), message: z.string() })
      .optional()
      .describe('In the last line if nothing was started'),
  })
  .describe('A line of the answer to a start; an empty one says that the gateway is still at work');
export const verbReply = z.object({
  run_id: z.string().describe('The run; of a fork the new one'),
  message: z.string().describe('What the command prints'),
});

export const take = z.object({
  iteration: z.int(),
  take: z.int(),
  status: z.enum(TAKE_STATUSES),
  policy_version: z.int().describe('The version that it samples from'),
  trained_version: z.int().nullable(),
  skipped: z.string().nullable().describe('Why its step made no update'),
  opened_at: seconds,
  ended_at: seconds.nullable(),
  seconds: durations,
  metrics: numbers.describe('Of its train step'),
  batch_metrics: numbers,
  groups: z.int(),
  dropped_groups: z.int(),
  equal_groups: z.int().describe('Groups whose trials all have the same reward'),
  unrewarded_groups: z.int().describe('Groups without any reward'),
  trials: z
    .record(z.string(), z.int())
    .describe(
      'The number of trials of each outcome; `open` while they run. A trial without an outcome counts by that of its last attempt, and as `cancelled` when the run has ended',
    ),
  reward: z
    .object({ mean: z.number(), median: z.number(), std: z.number(), count: z.int(), passed: z.int() })
    .nullable()
    .describe('Of the weighted rewards of its own trials'),
});
export const iterationList = z.object({
  iterations: z.array(take),
  next_from: z.int().nullable().describe('`?from=` this number reads the next page'),
});

export const listedTrial = z.object({
  trial_id: z.string(),
  trial_index: z.int().nullable(),
  agent: z.string().nullable(),
  attempt: z.int(),
  outcome: z.enum(OUTCOMES).nullable(),
  reward: z.number().nullable().describe('Weighted'),
  rewards: numbers.nullable(),
  reason: z.string().nullable(),
  calls: z.int(),
  tokens: z.int().describe('Sampled tokens'),
  seconds: z.number().nullable().describe('From the opening of its last attempt to its end'),
});
export const listedGroup = z.object({
  group_id: z.string(),
  kind: z.enum(GROUP_KINDS),
  iteration: z.int().nullable(),
  take: z.int().nullable(),
  superseded: z.boolean().describe('Its take was superseded: nothing of it counts'),
  task: z.string(),
  agent: z.string(),
  size: z.int(),
  policy_version: z.int(),
  dropped: z.enum(DROPPED).nullable(),
  opened_at: seconds,
  ended_at: seconds.nullable(),
  variance: z.number().nullable().describe('The variance of the rewards of all its trials'),
  mean: z.number().nullable().describe('The mean of the same rewards'),
  trials: z.array(listedTrial).describe('Those that were asked for'),
});
export const groupList = z.object({
  run_status: z.enum(RUN_STATUSES),
  groups: z.array(listedGroup),
  next_offset: z.int().nullable(),
});

const timelineAttempt = z.object({
  attempt: z.int(),
  outcome: z.enum(OUTCOMES).nullable(),
  reason: z.string().nullable().describe('Its first 200 characters'),
  evidence: z.string().nullable(),
  host: z.string().nullable(),
  opened_at: seconds,
  ended_at: seconds.nullable(),
  seconds: durations,
});
const timelineTrial = z.object({
  trial_id: z.string(),
  trial_index: z.int().nullable(),
  agent: z.string().nullable(),
  outcome: z.enum(OUTCOMES).nullable().describe('Of the trial, or else of its last attempt'),
  has_outcome: z.boolean().describe('False while it is under way or waits for its next attempt'),
  reward: z.number().nullable().describe('Weighted'),
  calls: z.int(),
  tokens: z.int().describe('Sampled tokens'),
  completed_at: seconds
    .nullable()
    .describe('From then on its last attempt takes no calls: its verification begins, or it ends'),
  call_since: seconds
    .nullable()
    .describe('The start of its oldest call under way; null when none has lasted for several seconds'),
  attempts: z.array(timelineAttempt),
});
export const timeline = z.object({
  run_status: z.enum(RUN_STATUSES),
  iteration: z.int(),
  take: z.int(),
  newest_take: z.int(),
  status: z.enum(TAKE_STATUSES),
  policy_version: z.int().describe('The version that it samples from'),
  trained_version: z.int().nullable(),
  skipped: z.string().nullable().describe('Why its step made no update'),
  opened_at: seconds,
  ended_at: seconds
    .nullable()
    .describe('Of a take that was superseded while it was open: the opening of the next take'),
  batch_at: seconds.nullable().describe('Its batch was made'),
  trained_at: seconds.nullable().describe('Its train step had made a version'),
  resumed_at: seconds.nullable().describe('The run was resumed for the last time, if that was during the take'),
  publications: z
    .array(z.object({ version: z.int(), replicas: z.int(), first_at: seconds, last_at: seconds }))
    .describe(
      'The version that it trained, and those that replicas confirmed during the take; the times are of the newest confirmation by each replica',
    ),
  waits_for: z
    .string()
    .nullable()
    .describe('What the open take waits for, in sentences, as far as the record shows it; null with an offset'),
  all_trials: z
    .object({
      running: z.int().describe('Those that may still change'),
      last_at: seconds.nullable().describe('The newest time that the record has of them'),
    })
    .nullable()
    .describe('Of all trials of the take, whatever the filter; null with an offset'),
  now: seconds.describe('The time of the answer, by the clock of PostgreSQL'),
  groups: z.array(
    z.object({
      group_id: z.string(),
      task: z.string(),
      agent: z.string(),
      size: z.int(),
      dropped: z.enum(DROPPED).nullable(),
      is_unclaimed: z.boolean().describe('With `rollouts: external`: no program has claimed it'),
      claimed_at: seconds.nullable(),
      opened_at: seconds,
      deadline_at: seconds.nullable(),
      ended_at: seconds.nullable().describe('The time of its quorum, its end or its deadline: a straggler ends later'),
      trials: z.array(timelineTrial).describe('Trials of which an attempt was opened'),
    }),
  ),
  next_offset: z
    .int()
    .nullable()
    .describe('A page has about 2,000 trials at most, so it may have fewer groups than asked for'),
});

const examples = z.array(z.string()).describe('Up to 20 of the trials');
export const droppedWork = z.object({
  groups: z.array(z.object({ reason: z.enum(DROPPED), groups: z.int() })),
  trials: z
    .array(z.object({ outcome: z.enum(OUTCOMES), trials: z.int(), examples }))
    .describe('Trials that were not scored'),
  attempts: z
    .array(z.object({ reason: z.string(), evidence: z.string().nullable(), attempts: z.int(), trials: examples }))
    .describe('Attempts that ended by an infrastructure error'),
  calls: z.array(z.object({ reason: z.string(), calls: z.int(), trials: examples })),
  calls_since: z.int().describe('Calls are counted from this iteration on'),
});

/** The most terms of a search, each of which costs a look at every text. */
const MOST_TERMS = 8;
export const searchQuery = z.strictObject({
  q: z
    .string()
    .max(200)
    .regex(/^[^\0]*$/, 'text without NUL')
    .refine((text) => termsOf(text).length > 0, 'has no word')
    .refine((text) => termsOf(text).length <= MOST_TERMS, `has more than ${MOST_TERMS} words and phrases`)
    .describe('Words, and phrases in quotation marks. A message that is found has all of them, in upper or lower case'),
  after: z.uuid().optional().describe('The `next_after` of a page'),
});
export const searchResult = z.object({
  run_status: z.enum(RUN_STATUSES),
  hits: z
    .array(
      z.object({
        trial_id: z.string(),
        attempt: z.int(),
        call_id: z.string(),
        number: z.int().describe('The place of the call among those of its attempt, from 1'),
        role: z.string().describe('Of the message that was found'),
        excerpt: z.array(z.object({ text: z.string(), is_match: z.boolean() })),
      }),
    )
    .describe('The newest trials first. Of one call up to 5 messages; a message that several calls send is found once'),
  searched: z.int().describe('The number of calls that were searched'),
  next_after: z
    .uuid()
    .nullable()
    .describe(
      '`?after=` this call searches on. A page may have no hits and not be the last: it searches at most 5,000 calls or 32 MiB',
    ),
});

const shownCall = z.object({
  call_id: z.string(),
  number: z.int().describe('Its place among the calls of its attempt, from 1'),
  continues: z
    .int()
    .nullable()
    .describe('The number of the call that it continues; null: it begins a conversation, or begins one again'),
  shares: z
    .object({ number: z.int(), messages: z.int(), characters: z.int() })
    .nullable()
    .describe(
      'The call whose first messages it has too without continuing it, and how many; `characters` is for text completions',
    ),
  messages: z
    .array(z.unknown())
    .describe(
      'Messages of its request after those of the call that it continues or shares some with; null: one that was sent before, too far back to be read here',
    ),
  shares_tools: z
    .object({ number: z.int(), tools: z.int() })
    .nullable()
    .describe('The call whose first tools its request has too, and how many'),
  tools: z.array(z.unknown()).nullable().describe('The tools of its request after those; null: it brings none'),
  tools_not_shown: z
    .string()
    .nullable()
    .describe('A sentence, with what to do, when the model’s chat template shows it none of the request’s tools'),
  reply: z.unknown(),
  status: z.enum(CALL_STATUSES),
  http_status: z.int(),
  reason: z.string().nullable(),
  untrainable: z.string().nullable(),
  why_untrainable: z.string().nullable().describe('`untrainable` as a sentence, with what to do'),
  continuation: z.enum(CONTINUATIONS).nullable(),
  finish_reason: z.string().nullable(),
  policy_version: z.int().nullable(),
  protocol: z.string(),
  prompt_tokens: z.int().nullable(),
  completion_tokens: z.int().nullable(),
  started_at: seconds,
  first_token_at: seconds.nullable(),
  ended_at: seconds,
});
export const transcript = z.object({
  session_id: z.string(),
  run_id: z.string().nullable(),
  run_status: z.enum(RUN_STATUSES).nullable(),
  group_id: z.string().nullable(),
  task: z.string().nullable(),
  agent: z.string().nullable(),
  attempt: z.int(),
  current_attempt: z.int(),
  outcome: z.enum(OUTCOMES).nullable(),
  rewards: numbers.nullable(),
  reward: z.number().nullable().describe('Weighted by its run'),
  reason: z.string().nullable(),
  attempts: z
    .array(
      z.object({
        attempt: z.int(),
        outcome: z.enum(OUTCOMES).nullable(),
        reason: z.string().nullable(),
        evidence: z.string().nullable(),
        host: z.string().nullable(),
        seconds: durations,
      }),
    )
    .nullable()
    .describe('Null on pages after the first, as `outputs` and `refusals` are'),
  outputs: z.array(z.object({ program: z.string(), stdout: z.string(), stderr: z.string() })).nullable(),
  refusals: z
    .object({
      count: z.int(),
      latest: z.array(z.object({ at: z.string(), status: z.int(), code: z.string(), message: z.string() })),
    })
    .nullable(),
  calls: z.array(shownCall),
  next: z.int().nullable().describe('`?after=` this number reads the next calls'),
});
export const callRequest = z.object({
  session_id: z.string(),
  call_id: z.string(),
  attempt: z.int(),
  path: z.enum(['/chat/completions', '/completions']).describe('The route of OpenAI’s API whose request it is'),
  body: z.string().describe('The request as JSON text, in OpenAI’s form whatever the agent’s protocol'),
});
export const callPath = z.object({ call: z.uuid() });
export const transcriptQuery = z.strictObject({
  attempt: z.coerce.number().int().min(1).max(999_999_999).optional(),
  after: whole(1_000_000).optional(),
  limit: limit(500),
});

export type ListedRun = z.output<typeof listedRun>;
export type RunList = z.output<typeof runList>;
export type RunStart = z.output<typeof runStart>;
export type StartLine = z.output<typeof startLine>;
export type RunVerb = z.output<typeof runVerb>;
export type VerbReply = z.output<typeof verbReply>;
export type RunDetails = z.output<typeof runDetails>;
export type Take = z.output<typeof take>;
export type IterationList = z.output<typeof iterationList>;
export type ListedGroup = z.output<typeof listedGroup>;
export type GroupList = z.output<typeof groupList>;
export type Timeline = z.output<typeof timeline>;
export type DroppedWork = z.output<typeof droppedWork>;
export type SearchResult = z.output<typeof searchResult>;
export type ShownCall = z.output<typeof shownCall>;
export type CallRequest = z.output<typeof callRequest>;
export type Transcript = z.output<typeof transcript>;
