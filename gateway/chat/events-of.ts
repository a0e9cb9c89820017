import { asEvent, DONE } from '../sse.ts';
import { wholeAsChunks } from '../token-in/chat-chunks.ts';
import type { ChatRequest } from './request.ts';

/** A reply that is there whole, as the stream that was asked for. */
export async function eventsOf(whole: () => Promise<Record<string, unknown>>, request: ChatRequest, headers: Record<string, string>): Promise<Response> {
  let events = '';
  for await (const chunk of wholeAsChunks(whole)) {
    const isUsage = Array.isArray(chunk.choices) && chunk.choices.length === 0;
    if (!isUsage || request.wants.usage) events += asEvent(JSON.stringify(chunk));
  }
  return new Response(events + asEvent(DONE), { headers: { ...headers, 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' } });
}
