import type { TrialNow } from '../store/queries/find-trials.ts';
import type { Call } from '../store/queries/read-calls.ts';
import { choicesOf } from '../store/calls/choices.ts';
import { isObject } from './json.ts';

/**
 * verl-recipe PR 83's SessionRecord, with more fields a turn. `turns` has the calls of one attempt that completed, in the
 * order of their commits; `unfinished` those that failed or were cancelled, in the same form, so that a reader who trains on
 * every turn does not meet them. Times are seconds since the epoch.
 */
export function sessionRecord(row: TrialNow, attempt: number, calls: readonly Call[]) {
  const isDone = (call: Call) => call.status === 'completed';
  return {
    session_id: row.id,
    turns: calls.filter(isDone).map(turn),
    created_at: seconds(row.createdAt),
    completed: row.status === 'completed',
    run_id: row.runId,
    group_id: row.groupId,
    attempt,
    current_attempt: row.attempt,
    sampling: row.sampling,
    budgets: row.budgets,
    usage: { calls: row.usedCalls, tokens: row.usedTokens },
    exhausted: row.exhausted,
    outcome: row.outcome,
    rewards: row.rewards,
    reason: row.reason,
    unfinished: calls.filter((call) => !isDone(call)).map(turn),
  };
}

function turn(call: Call) {
  const { request } = call;
  const [choice] = choicesOf(call.response ?? {});
  const said = isObject(choice?.message) ? choice.message : { content: choice?.text };
  return {
    request_messages: request.messages ?? [],
    completion_text: typeof said.content === 'string' ? said.content : '',
    completion_token_ids: list(call.completionTokenIds),
    completion_logprobs: list(call.logprobs),
    finish_reason: call.finishReason,
    tool_calls: said.tool_calls ?? null,
    prompt_token_ids: list(call.promptTokenIds),
    prompt: request.prompt ?? null,
    tools: request.tools ?? null,
    sampling: call.sampling,
    policy_version: call.policyVersion,
    policy_label: call.policyLabel,
    version_spans: call.versionSpans,
    parent_call_id: call.parentId,
    continuation: call.continuation,
    attempt: call.attempt,
    status: call.status,
    reason: call.reason,
    untrainable: call.untrainable,
    call_id: call.id,
    choice_of: call.choiceOf,
    http_status: call.httpStatus,
    stream: call.stream,
    started_at: seconds(call.startedAt),
    first_token_at: call.firstTokenAt && seconds(call.firstTokenAt),
    ended_at: seconds(call.endedAt),
  };
}

const list = (values: ArrayLike<number> | null): number[] => (values ? Array.from(values) : []);

const seconds = (date: Date): number => date.getTime() / 1000;
