/** Types of Trialgate's API, as in its `/openapi.json`. Times are seconds since the epoch. */
export type Outcome =
  'scored' | 'truncated' | 'timed_out' | 'agent_error' | 'verifier_error' | 'infra_error' | 'cancelled';

type Choice = number | { default: number } | 'agent';
type SamplingName =
  | 'temperature'
  | 'top_p'
  | 'top_k'
  | 'min_p'
  | 'presence_penalty'
  | 'frequency_penalty'
  | 'repetition_penalty'
  | 'max_tokens'
  | 'seed';
/** A number is forced on every call, a default applies to calls that name no value, `agent` leaves the setting to the agent. */
export type Sampling = { [Name in SamplingName]?: Choice };
export type Budgets = { calls?: number; tokens?: number; seconds?: number; bytes?: number; prompt_tokens?: number };

export type Opening = {
  run_id?: string;
  group_id?: string;
  attempt?: number;
  sampling?: Sampling;
  budgets?: Budgets;
  metadata?: Record<string, unknown>;
};
export type OpenedSession = {
  session_id: string;
  status: 'created';
  attempt: number;
  api_key: string;
  base_url: string;
};

export type Filter = {
  run_id?: string;
  group_id?: string;
  outcome?: Outcome;
  status?: 'created' | 'completed';
  cursor?: string;
};

type SessionState = {
  session_id: string;
  run_id: string | null;
  group_id: string | null;
  attempt: number;
  exhausted: 'budget_exhausted' | 'context_length_exceeded' | null;
  outcome: Outcome | null;
  /** The rewards that the verifier gave. */
  rewards: Record<string, number> | null;
  /** The score that the agent gave itself, outside any run. */
  reported_reward: number | null;
  reason: string | null;
  /** The metadata that the client gave when it opened the trial. */
  metadata: Record<string, unknown> | null;
  created_at: number;
};

export type Summary = SessionState & {
  trial_index: number | null;
  task: string | null;
  agent: string | null;
  status: 'created' | 'completed';
  policy_version: number | null;
  usage: { calls: number; tokens: number; bytes: number };
  completed_at: number | null;
};
export type Page = { sessions: Summary[]; next_cursor: string | null };

export type Refusal = {
  at: string;
  attempt: number;
  status: number;
  code: string;
  request: string;
  item: string | null;
  message: string;
  size: number | null;
  digest: string | null;
};

export type Turn = {
  request_messages: unknown[];
  completion_text: string;
  completion_token_ids: number[];
  /** In nats, one for each sampled token. */
  completion_logprobs: number[];
  finish_reason: string | null;
  tool_calls: unknown[] | null;
  left_out: unknown[] | null;
  prompt_token_ids: number[];
  prompt: unknown;
  tools: unknown[] | null;
  sampling: Record<string, unknown>;
  policy_version: number | null;
  weight_version: string | null;
  version_spans: { version: number; start: number; end: number }[] | null;
  routed_experts: { sha256: string; bytes: number; form: string; start: number } | null;
  parent_call_id: string | null;
  continuation: 'clean' | 'drifted' | 'branched' | null;
  attempt: number;
  status: 'completed' | 'failed' | 'cancelled';
  reason: string | null;
  untrainable: string | null;
  call_id: string;
  protocol: string;
  choice_of: string | null;
  http_status: number;
  request_bytes: number | null;
  stream: boolean;
  started_at: number;
  first_token_at: number | null;
  ended_at: number;
};

export type Session = SessionState & {
  turns: Turn[];
  unfinished: Turn[];
  next: number;
  /** The requests that were refused before they became calls: their number, and the latest ones. */
  refusals: { count: number; latest: Refusal[] };
  completed: boolean;
  current_attempt: number;
  sampling: Sampling;
  budgets: Budgets;
  usage: { calls: number; tokens: number; bytes: number };
};

/** One trainable token sequence. Every list but `call_ids` has one entry a token. */
export type Sample = {
  token_ids: number[];
  loss_mask: number[];
  logprobs: number[];
  /** The ids over which each log-probability is normalized. Present where sampling was truncated and the engine returns its mask. */
  sampling_mask?: (number[] | null)[];
  policy_versions: (number | null)[];
  call_ids: string[];
};
export type Samples = { samples: Sample[] };
export type SampleLine = SessionState & Samples;
export type RewardReply = { session_id: string; attempt: number; reported_reward: number };
export type SessionEnd<Status extends string> = { session_id: string; status: Status };

export type ClaimedTrial = {
  trial_id: string;
  trial_index: number;
  attempt: number;
  api_key: string;
  base_url: string;
};
export type ClaimReply = {
  run: 'running' | 'blocked' | 'completed' | 'failed' | 'cancelled';
  reason: string | null;
  /** Null when no group waits now. */
  group: { group_id: string; task: string; trials: ClaimedTrial[] } | null;
};
export type ReportReply = {
  trial_id: string;
  attempt: number;
  outcome: Outcome;
  rewards: Record<string, number> | null;
};

export type Engine = {
  url: string;
  /** The source that names it: `--engine`, the file, the pods of Kubernetes, a person, or a run file. */
  found_by: 'list' | 'file' | 'kubernetes' | 'hand' | 'run' | null;
  state: 'serving' | 'draining' | 'left';
  drained_by_hand: boolean;
  run_id: string | null;
  weight_version: string | null;
  in_rotation: boolean;
  calls_in_flight: number;
};
export type EngineList = { engines: Engine[] };
