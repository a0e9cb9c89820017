import type { calls, ProtocolName } from '../../store/schema.ts';
import type { Span, SpanKey } from './span.ts';

export type SpannedCall = Pick<
  typeof calls.$inferSelect,
  | 'id'
  | 'attempt'
  | 'status'
  | 'reason'
  | 'httpStatus'
  | 'protocol'
  | 'stream'
  | 'sampling'
  | 'finishReason'
  | 'weightVersion'
  | 'policyVersion'
  | 'continuation'
  | 'untrainable'
  | 'startedAt'
  | 'firstTokenAt'
  | 'traceparent'
  | 'endedAt'
> & {
  promptTokens: number | null;
  completionTokens: number | null;
  /** The second and later replies of the request. */
  further: { finishReason: string | null; completionTokens: number | null }[];
};

/** OpenTelemetry's names of what a request asks for. */
const OPERATIONS: Record<ProtocolName, string> = {
  chat_completions: 'chat',
  messages: 'chat',
  responses: 'chat',
  completions: 'text_completion',
  gemini: 'generate_content',
};

/** Makes the span of a call by OpenTelemetry's conventions for generative AI, without any text of it. */
export function callSpan(call: SpannedCall, key: SpanKey & { parent: string }, trialId: string, model: string): Span {
  const { sampling, startedAt, firstTokenAt, endedAt } = call;
  const operation = OPERATIONS[call.protocol];
  const replies = [call, ...call.further];
  const sampled = replies.flatMap(({ completionTokens }) => completionTokens ?? []);
  return {
    ...key,
    name: `${operation} ${model}`,
    kind: 'client',
    start: startedAt.getTime(),
    end: endedAt.getTime(),
    attributes: {
      'gen_ai.operation.name': operation,
      'gen_ai.provider.name': 'trialgate',
      'gen_ai.conversation.id': trialId,
      'gen_ai.request.model': model,
      'gen_ai.request.temperature': numberOf(sampling['temperature']),
      'gen_ai.request.top_p': numberOf(sampling['top_p']),
      'gen_ai.request.top_k': numberOf(sampling['top_k']),
      'gen_ai.request.choice.count': replies.length > 1 ? replies.length : null,
      'gen_ai.response.id': call.id,
      'gen_ai.response.model': call.weightVersion,
      'gen_ai.response.finish_reasons': replies.flatMap(({ finishReason }) => finishReason ?? []),
      'gen_ai.usage.input_tokens': call.promptTokens,
      'gen_ai.usage.output_tokens': sampled.length > 0 ? sampled.reduce((sum, count) => sum + count, 0) : null,
      'http.response.status_code': call.httpStatus,
      'trialgate.attempt': call.attempt,
      'trialgate.policy_version': call.policyVersion,
      'trialgate.continuation': call.continuation,
      'trialgate.untrainable': call.untrainable,
      'trialgate.stream': call.stream,
      'trialgate.seconds_to_first_token': firstTokenAt && (firstTokenAt.getTime() - startedAt.getTime()) / 1000,
      ...(call.status === 'completed' ? {} : { 'error.type': codeOf(call) }),
    },
    ...(call.traceparent === null ? {} : { links: [spanOfAgent(call.traceparent)] }),
    ...(call.status === 'completed' ? {} : { error: codeOf(call) }),
  };
}

/** Returns the span that a traceparent names: `00-{trace}-{span}-{flags}`. The gateway records no other form. */
function spanOfAgent(traceparent: string): SpanKey {
  const [, trace = '', span = ''] = traceparent.split('-');
  return { trace, span };
}

const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null);

/** Returns the code with which a reason begins. What follows may have texts of the request. */
const codeOf = ({ reason, status, httpStatus }: SpannedCall): string =>
  /^[a-z][a-z0-9_]*(?=:)/.exec(reason ?? '')?.[0] ?? `${status}_${httpStatus}`;
