import { epochSeconds } from '../../../core/epoch-seconds.ts';
import type { StoredCall } from '../../../store/queries/read-calls.ts';
import type { RefusalSummary } from '../../../store/queries/refusals.ts';
import type { TrialRow } from '../../../store/queries/transaction.ts';
import type { TokenSample } from '../../../store/samples/build-samples.ts';
import type { Sample, SampleLine, Session, Summary, Turn } from '../openapi/schemas.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject } from '../../json.ts';

/**
 * Builds verl-recipe PR 83's SessionRecord, with more fields a turn. `turns` has the completed calls of one attempt in the order of their
 * commits. `unfinished` has the failed and cancelled ones in the same form, apart, because readers train on every turn. Times are seconds
 * since the epoch. `after` is the number of the last call that the reader has.
 */
export function sessionRecord(
  row: TrialRow,
  attempt: number,
  calls: readonly StoredCall[],
  refused: RefusalSummary | null,
  after = 0,
): Session {
  const isDone = (call: StoredCall) => call.status === 'completed';
  return {
    ...sessionHead(row, attempt),
    turns: calls.filter(isDone).map(turn),
    completed: row.status === 'completed',
    current_attempt: row.attempt,
    sampling: row.sampling,
    budgets: row.budgets,
    usage: usage(row),
    unfinished: calls.filter((call) => !isDone(call)).map(turn),
    next: calls.at(-1)?.seq ?? after,
    refusals: refused ?? { count: 0, latest: [] },
  };
}

/** Builds a session of a list: everything but its calls. */
export function sessionSummary(row: TrialRow): Summary {
  return {
    ...sessionHead(row, row.attempt),
    trial_index: row.trialIndex,
    task: row.task,
    agent: row.agent,
    status: row.status === 'completed' ? 'completed' : 'created',
    policy_version: row.policyVersion,
    usage: usage(row),
    completed_at: row.completedAt && epochSeconds(row.completedAt),
  };
}

export const sampleLine = (row: TrialRow, samples: readonly TokenSample[]): SampleLine => ({
  ...sessionHead(row, row.attempt),
  samples: samples.map(sampleRecord),
});

export const sampleRecord = ({
  tokenIds,
  lossMask,
  logprobs,
  samplingMask,
  policyVersions,
  callIds,
}: TokenSample): Sample => ({
  token_ids: Array.from(tokenIds),
  loss_mask: Array.from(lossMask),
  logprobs: Array.from(logprobs),
  ...(samplingMask.some((ids) => ids !== null) ? { sampling_mask: samplingMask.map((ids) => ids && [...ids]) } : {}),
  policy_versions: policyVersions,
  call_ids: callIds,
});

const sessionHead = (row: TrialRow, attempt: number) => ({
  session_id: row.id,
  run_id: row.runId,
  group_id: row.groupId,
  attempt,
  exhausted: row.exhausted,
  outcome: row.outcome,
  rewards: row.rewards,
  reported_reward: row.reportedReward,
  reason: row.reason,
  metadata: row.metadata,
  created_at: epochSeconds(row.createdAt),
});

const usage = ({ usedCalls, usedTokens, usedBytes }: TrialRow) => ({
  calls: usedCalls,
  tokens: usedTokens,
  bytes: usedBytes,
});

function turn(call: StoredCall): Turn {
  const { request } = call;
  const [choice] = choicesOf(call.response ?? {});
  const message = isObject(choice?.message) ? choice.message : { content: choice?.text };
  return {
    request_messages: listed(request.messages) ?? [],
    completion_text: typeof message.content === 'string' ? message.content : '',
    completion_token_ids: list(call.completionTokenIds),
    completion_logprobs: list(call.logprobs),
    finish_reason: call.finishReason,
    tool_calls: listed(message.tool_calls),
    prompt_token_ids: list(call.promptTokenIds),
    prompt: request.prompt ?? null,
    tools: listed(request.tools),
    left_out: listed(request.left_out),
    sampling: call.sampling,
    policy_version: call.policyVersion,
    weight_version: call.weightVersion,
    version_spans: call.versionSpans,
    routed_experts: call.routedExperts,
    parent_call_id: call.parentId,
    continuation: call.continuation,
    attempt: call.attempt,
    status: call.status,
    reason: call.reason,
    untrainable: call.untrainable,
    call_id: call.id,
    choice_of: call.choiceOf,
    http_status: call.httpStatus,
    request_bytes: call.requestBytes,
    protocol: call.protocol,
    stream: call.stream,
    started_at: epochSeconds(call.startedAt),
    first_token_at: call.firstTokenAt && epochSeconds(call.firstTokenAt),
    ended_at: epochSeconds(call.endedAt),
  };
}

const list = (values: ArrayLike<number> | null): number[] => (values ? Array.from(values) : []);

const listed = (value: unknown): unknown[] | null => (Array.isArray(value) ? value : null);
