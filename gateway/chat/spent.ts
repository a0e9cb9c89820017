import type { Failure } from '../failure.ts';
import type { Call } from './call.ts';
import { eventsOf } from './events-of.ts';

/** What an agent gets whose trial's budget is used up: a reply without text that was cut by its length, as protocols have it. */
export async function spentReply(call: Call, why: Failure): Promise<Response> {
  const { id, request } = call;
  const choice = { index: 0, message: { role: 'assistant', content: '' }, logprobs: null, finish_reason: 'length' };
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const head = { id: `chatcmpl-${id}`, object: 'chat.completion', created: Math.floor(Date.now() / 1000), model: request.model ?? 'policy' };
  const whole = { ...head, choices: [choice], usage };
  await call.refuse(why, whole);
  const headers = { 'x-trialgate-call': id };
  return request.stream ? eventsOf(async () => whole, request, headers) : Response.json(whole, { headers });
}
