import { chatReply } from '../../engines/completion.ts';
import type { JsonObject } from '../../json.ts';
import type { Call } from '../call.ts';

/** Returns the reply to a call whose trial has used up its budget: without text, ended by its length. */
export function budgetExhaustedBody({ id, request }: Pick<Call, 'id' | 'request'>): JsonObject {
  const isText = request.kind === 'text';
  const empty = isText ? { text: '' } : { message: { role: 'assistant', content: '' } };
  const choices = Array.from({ length: request.n }, (_, index) => ({
    index,
    ...empty,
    logprobs: null,
    finish_reason: 'length',
  }));
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const reply = chatReply({
    id: `${isText ? 'cmpl' : 'chatcmpl'}-${id}`,
    model: request.model ?? 'policy',
    choices,
    usage,
  });
  return isText ? { ...reply, object: 'text_completion' } : reply;
}
