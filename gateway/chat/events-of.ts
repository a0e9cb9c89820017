import { asEvent, DONE } from '../sse.ts';
import { isOnlyUsage } from './hide.ts';
import type { ChatRequest } from './request.ts';
import { wholeAsChunks } from './whole-as-chunks.ts';

/** A reply that is there whole, as the stream that was asked for. */
export async function eventsOf(whole: () => Promise<Record<string, unknown>>, request: ChatRequest, headers: Record<string, string>): Promise<Response> {
  let events = '';
  for await (const chunk of wholeAsChunks(whole)) {
    if (!isOnlyUsage(chunk) || request.wants.usage) events += asEvent(JSON.stringify(chunk));
  }
  return new Response(events + asEvent(DONE), { headers: { ...headers, 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' } });
}
