import type { Outcome } from './types.ts';

export type RunStatus = 'running' | 'blocked' | 'completed' | 'failed' | 'cancelled';
type RunState = {
  run_id: string;
  status: RunStatus;
  /** Why it is blocked or failed. */
  reason: string | null;
  created_at: number;
  ended_at: number | null;
  forked_from: string | null;
  rescores: string | null;
};
/** `rewards`: the mean rewards of the newest 100 batches, the oldest first. */
export type ListedRun = RunState & { iteration: number | null; rewards: number[] };
export type RunList = {
  runs: ListedRun[];
  next_cursor: string | null;
  /** True where `startRun` starts runs. */
  is_operable: boolean;
};

export type Evaluation = {
  id: string;
  policy_version: number;
  trials: number;
  scored: number;
  reward_mean: number | null;
  /** pass@k by k: the share of tasks of which at least one of k trials has a reward of 1 or more. Empty before a trial is scored. */
  pass_at: Record<string, number>;
};
export type RunDetails = RunState & {
  config: unknown;
  /** The end of its pause; null if it has none. A pause that was asked of Temporal alone is not here. */
  paused_until: number | null;
  /** True where `operate` changes runs. */
  is_operable: boolean;
  evaluations: Evaluation[];
  quarantined: { task: string; reason: string; at: number }[];
};

/** What a run is to do, as the command of that name. `seconds`: a day if absent. A redo of an iteration or take that is not the last one is refused. */
export type RunVerb =
  | { verb: 'pause'; seconds?: number }
  | { verb: 'resume'; retry_failed?: boolean }
  | { verb: 'stop' | 'cancel' }
  | { verb: 'redo'; iteration?: number; take?: number }
  /** `file`: settings of a run file in place of the other run's; what it leaves out stays. */
  | { verb: 'fork'; version: number; run_id?: string; iterations?: number; file?: string };
/** A run to start. `file`: the text of a run file. `as`: an earlier run; the new one may have the same entries. */
export type RunStart = { file: string; file_name?: string; as?: string; run_id?: string };
/** `progress`: what was done, or a warning. The last line has either the run that was started, or why it was not. */
export type StartLine = Partial<VerbReply> & {
  progress?: string;
  error?: { status: number; code: string; message: string };
};
/** `run_id`: the run; of a fork the new one. `message`: what the command prints. */
export type VerbReply = { run_id: string; message: string };

/** `now`: the state when the events begin. `changed`: something of the run has changed. */
export type RunEvent = { name: 'now' | 'changed'; id: string };

export type Take = {
  iteration: number;
  take: number;
  status: 'open' | 'done' | 'superseded';
  policy_version: number;
  trained_version: number | null;
  skipped: string | null;
  opened_at: number;
  ended_at: number | null;
  /** Seconds by phase. */
  seconds: Record<string, number>;
  metrics: Record<string, number>;
  batch_metrics: Record<string, number>;
  groups: number;
  dropped_groups: number;
  equal_groups: number;
  /** Groups without any reward. */
  unrewarded_groups: number;
  /** The number of trials of each outcome; `open` while they run. A trial without an outcome counts by that of its last attempt, and as `cancelled` when the run has ended. */
  trials: Record<string, number>;
  /** Of the weighted rewards of its own trials. */
  reward: { mean: number; median: number; std: number; count: number; passed: number } | null;
};
export type IterationList = { iterations: Take[]; next_from: number | null };

export type DropReason = 'no_spread' | 'stale' | 'failed';
export type ListedTrial = {
  trial_id: string;
  trial_index: number | null;
  agent: string | null;
  attempt: number;
  outcome: Outcome | null;
  /** Weighted. */
  reward: number | null;
  rewards: Record<string, number> | null;
  reason: string | null;
  calls: number;
  tokens: number;
  seconds: number | null;
};
export type ListedGroup = {
  group_id: string;
  kind: 'train' | 'eval';
  iteration: number | null;
  take: number | null;
  /** True when its take was superseded, so that nothing of it counts. */
  superseded: boolean;
  task: string;
  agent: string;
  size: number;
  policy_version: number;
  dropped: DropReason | null;
  opened_at: number;
  ended_at: number | null;
  variance: number | null;
  /** Of all its trials, as the variance is. */
  mean: number | null;
  trials: ListedTrial[];
};
export type GroupList = { run_status: RunStatus; groups: ListedGroup[]; next_offset: number | null };
/** Which trials are read: by the outcome (or `open`), the agent's name, and the weighted reward. */
export type TrialFilter = { outcome?: string; agent?: string; reward_min?: number; reward_max?: number };
export type GroupFilter = TrialFilter & {
  iteration?: number;
  take?: number;
  group_id?: string;
  evaluation?: string;
  dropped?: DropReason;
  offset?: number;
  limit?: number;
};

export type TimelineAttempt = {
  attempt: number;
  outcome: Outcome | null;
  reason: string | null;
  evidence: string | null;
  host: string | null;
  opened_at: number;
  ended_at: number | null;
  seconds: Record<string, number>;
};
export type TimelineTrial = {
  trial_id: string;
  trial_index: number | null;
  agent: string | null;
  /** Of the trial, or else of its last attempt. */
  outcome: Outcome | null;
  /** False while it is under way or waits for its next attempt. */
  has_outcome: boolean;
  /** Weighted. */
  reward: number | null;
  calls: number;
  tokens: number;
  /** From then on its last attempt takes no calls: its verification begins, or it ends. */
  completed_at: number | null;
  /** The start of its oldest call under way; null when none has lasted for several seconds. */
  call_since: number | null;
  attempts: TimelineAttempt[];
};
export type TimelineGroup = {
  group_id: string;
  task: string;
  agent: string;
  size: number;
  dropped: DropReason | null;
  /** With `rollouts: external`: no program has claimed it. */
  is_unclaimed: boolean;
  claimed_at: number | null;
  opened_at: number;
  deadline_at: number | null;
  /** The time of its quorum, its end or its deadline: a straggler ends later. */
  ended_at: number | null;
  /** The trials of which an attempt was opened. */
  trials: TimelineTrial[];
};
export type Timeline = {
  run_status: RunStatus;
  iteration: number;
  take: number;
  newest_take: number;
  status: Take['status'];
  policy_version: number;
  trained_version: number | null;
  skipped: string | null;
  opened_at: number;
  /** Of a take that was superseded while it was open: the opening of the next take. */
  ended_at: number | null;
  batch_at: number | null;
  trained_at: number | null;
  /** The run was resumed for the last time, if that was during the take. */
  resumed_at: number | null;
  /** The version that it trained, and those that replicas confirmed during the take. The times are of the newest confirmation by each replica. */
  publications: { version: number; replicas: number; first_at: number; last_at: number }[];
  /** What the open take waits for, in sentences, as far as the record shows it. Null with an offset. */
  waits_for: string | null;
  /** Of all trials of the take, whatever the filter: those that may still change, and the newest time. Null with an offset. */
  all_trials: { running: number; last_at: number | null } | null;
  now: number;
  groups: TimelineGroup[];
  next_offset: number | null;
};

export type DroppedWork = {
  groups: { reason: DropReason; groups: number }[];
  trials: { outcome: Outcome; trials: number; examples: string[] }[];
  attempts: { reason: string; evidence: string | null; attempts: number; trials: string[] }[];
  /** Calls of the iterations from `calls_since` on. */
  calls: { reason: string; calls: number; trials: string[] }[];
  calls_since: number;
};

export type ShownCall = {
  call_id: string;
  /** Its place among the calls of its attempt, from 1. */
  number: number;
  /** The number of the call that it continues; null: it begins a conversation, or begins one again. */
  continues: number | null;
  /** The call whose first messages it has too without continuing it, and how many. `characters` is for text completions. */
  shares: { number: number; messages: number; characters: number } | null;
  /**
   * The messages of its request after those of the call that it continues or shares some with. Null is one that was sent before, too far back
   * to be read here.
   */
  messages: unknown[];
  /** The call whose first tools its request has too, and how many. */
  shares_tools: { number: number; tools: number } | null;
  /** The tools of its request after those; null: it brings none. */
  tools: unknown[] | null;
  /** A sentence, with what to do, when the model's chat template shows it none of the request's tools. */
  tools_not_shown: string | null;
  reply: unknown;
  status: 'completed' | 'failed' | 'cancelled';
  http_status: number;
  reason: string | null;
  untrainable: string | null;
  /** `untrainable` as a sentence, with what to do. */
  why_untrainable: string | null;
  continuation: 'clean' | 'drifted' | 'branched' | null;
  finish_reason: string | null;
  policy_version: number | null;
  protocol: string;
  prompt_tokens: number | null;
  completion_tokens: number | null;
  started_at: number;
  first_token_at: number | null;
  ended_at: number;
};
/** The whole request of a call: `body` is JSON text in OpenAI's form, for the route `path` of OpenAI's API. */
export type CallRequest = {
  session_id: string;
  call_id: string;
  attempt: number;
  path: '/chat/completions' | '/completions';
  body: string;
};
export type Transcript = {
  session_id: string;
  run_id: string | null;
  run_status: RunStatus | null;
  group_id: string | null;
  task: string | null;
  agent: string | null;
  attempt: number;
  current_attempt: number;
  outcome: Outcome | null;
  rewards: Record<string, number> | null;
  reward: number | null;
  reason: string | null;
  /** Null on pages after the first, as `outputs` and `refusals` are. */
  attempts:
    | {
        attempt: number;
        outcome: Outcome | null;
        reason: string | null;
        evidence: string | null;
        host: string | null;
        seconds: Record<string, number>;
      }[]
    | null;
  outputs: { program: string; stdout: string; stderr: string }[] | null;
  refusals: { count: number; latest: { at: string; status: number; code: string; message: string }[] } | null;
  calls: ShownCall[];
  /** `after` this number reads the next calls. */
  next: number | null;
};

export type SearchHit = {
  trial_id: string;
  attempt: number;
  call_id: string;
  /** The place of the call among those of its attempt, from 1. */
  number: number;
  /** Of the message that was found. */
  role: string;
  excerpt: { text: string; is_match: boolean }[];
};
/** `searched`: the number of calls. A page may have no hits and not be the last. */
export type SearchResult = { run_status: RunStatus; hits: SearchHit[]; searched: number; next_after: string | null };
