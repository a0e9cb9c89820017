import type { Call } from '../../store/queries/read-calls.ts';
import { eventsOf } from '../chat/events-of.ts';
import type { ChatRequest } from '../chat/request.ts';
import { parseObject } from '../json.ts';

/** The reply of a call that completed, once more: no other call is made or recorded. */
export async function replay(call: Call, request: ChatRequest): Promise<Response> {
  const reply = parseObject(new TextDecoder().decode(call.response ?? new Uint8Array())) ?? {};
  const headers = { 'x-trialgate-call': call.id, 'x-trialgate-replay': 'true' };
  return request.stream ? eventsOf(async () => reply, request, headers) : Response.json(reply, { headers });
}
