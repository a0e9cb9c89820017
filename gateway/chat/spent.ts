import { eventsOf } from './events-of.ts';
import type { ChatRequest } from './request.ts';

/** What an agent gets whose trial's budget is used up: a reply without text that was cut by its length, as protocols have it. */
export async function spentReply(request: ChatRequest): Promise<Response> {
  const choice = { index: 0, message: { role: 'assistant', content: '' }, logprobs: null, finish_reason: 'length' };
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const head = { id: `chatcmpl-${crypto.randomUUID()}`, object: 'chat.completion', created: Math.floor(Date.now() / 1000), model: request.model ?? 'policy' };
  const whole = { ...head, choices: [choice], usage };
  return request.stream ? eventsOf(async () => whole, request, {}) : Response.json(whole);
}
