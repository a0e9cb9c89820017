import type { Failure } from '../failure.ts';
import type { JsonObject } from '../json.ts';
import type { Call } from './call.ts';
import { chatReply } from './whole-as-chunks.ts';
import { wholeReply } from './whole-reply.ts';

/** Answers an agent whose trial has used up its budget: without text, ended by its length, in the form of its protocol. */
export async function budgetExhaustedReply(call: Call, why: Failure, { isRecorded = true } = {}): Promise<Response> {
  const whole = budgetExhaustedBody(call);
  if (isRecorded) await call.refuse(why, whole);
  else call.drop();
  return wholeReply(call.id, whole, call.request);
}

export function budgetExhaustedBody({ id, request }: Call): JsonObject {
  const isText = request.route === '/v1/completions';
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
