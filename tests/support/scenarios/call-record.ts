import { randomUUID } from 'node:crypto';
import { outlineOf } from '../../../store/calls/outline.ts';
import type { CallRecord, ChoiceRecord } from '../../../store/queries/record-calls.ts';

type CallValues = Partial<Omit<CallRecord, 'request' | 'choices'>> & {
  request?: Record<string, unknown>;
  choice?: Partial<ChoiceRecord>;
};

/** Returns a completed call with the given values. */
export function callRecord({
  id = randomUUID(),
  request = { messages: [] },
  choice,
  ...given
}: CallValues): CallRecord {
  const nothing = {
    completionTokenIds: null,
    logprobs: null,
    finishReason: null,
    policyVersion: null,
    versionSpans: null,
    untrainable: null,
  };
  return {
    id,
    trialId: 'trial',
    attempt: 1,
    status: 'completed',
    httpStatus: 200,
    protocol: 'chat_completions',
    stream: false,
    sampling: {},
    startedAt: new Date(),
    endedAt: new Date(),
    ...given,
    request: outlineOf(request),
    choices: [{ id, ...nothing, ...choice }],
  };
}
