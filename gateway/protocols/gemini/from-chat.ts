import { choicesOf } from '../../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { asProtocolId } from '../call-ids.ts';
import { argumentsIn, parseMessage, type MessageParts, type ToolCall } from '../message-parts.ts';
import type { Usage } from '../usage.ts';
import { usageOf } from '../usage.ts';

/** Converts a chat reply to Gemini's. `showsThoughts`: the agent asked for the model's reasoning. */
export function contentReply(
  reply: JsonObject,
  callId: string,
  { showsThoughts }: { showsThoughts: boolean },
): JsonObject {
  const candidates = choicesOf(reply).map((choice, place) => {
    const message = parseMessage(choice.message);
    const parts = [...saidParts(message, showsThoughts), ...message.tools.map(callPart)];
    return candidate(typeof choice.index === 'number' ? choice.index : place, parts, {
      finishReason: finishReasonOf(choice.finish_reason),
      ...logprobsResult(choice),
    });
  });
  return { candidates, ...replyHead(callId, reply.model), usageMetadata: usageMetadata(usageOf(reply.usage)) };
}

export const saidParts = ({ reasoning, text }: MessageParts, showsThoughts: boolean): JsonObject[] => [
  ...(showsThoughts && reasoning !== '' ? [{ text: reasoning, thought: true }] : []),
  ...(text === '' ? [] : [{ text }]),
];

/** Clients expect a part even in an empty reply. */
export const candidate = (index: number, parts: readonly JsonObject[], end: JsonObject = {}): JsonObject => ({
  content: { role: 'model', parts: parts.length > 0 ? parts : [{ text: '' }] },
  index,
  ...end,
});

export const replyHead = (callId: string, model: unknown): JsonObject => ({
  modelVersion: model,
  responseId: asProtocolId('resp', callId),
});

export const callPart = ({ id, name, arguments: given }: ToolCall): JsonObject => ({
  functionCall: { ...(id === null ? {} : { id }), name, args: argumentsIn(given) },
});

const FINISHES: Record<string, string> = { length: 'MAX_TOKENS', content_filter: 'SAFETY' };
export const finishReasonOf = (finish: unknown): string => FINISHES[String(finish)] ?? 'STOP';

export function usageMetadata({ prompt, completion, cached, reasoning }: Usage): JsonObject {
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: completion - reasoning,
    totalTokenCount: prompt + completion,
    ...(cached === null ? {} : { cachedContentTokenCount: cached }),
    ...(reasoning === 0 ? {} : { thoughtsTokenCount: reasoning }),
  };
}

/** Returns the log-probabilities of the tokens, if the agent asks for them. */
export function logprobsResult({ logprobs }: JsonObject): JsonObject {
  if (!isObject(logprobs) || !Array.isArray(logprobs.content)) return {};
  const entries = logprobs.content.filter(isObject);
  const shown = ({ token, logprob }: JsonObject) => ({ token, logProbability: logprob });
  return {
    logprobsResult: {
      chosenCandidates: entries.map(shown),
      topCandidates: entries.map(({ top_logprobs: top }) => ({
        candidates: Array.isArray(top) ? top.filter(isObject).map(shown) : [],
      })),
    },
  };
}
