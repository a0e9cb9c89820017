import { jsonReply } from '../json-reply.ts';
import type { JsonObject } from '../json.ts';
import { EVENT_STREAM } from '../sse.ts';
import type { ModelRequest } from './request.ts';
import { wholeAsChunks } from './whole-as-chunks.ts';

/** A reply that is there whole, in the form that was asked for. */
export function wholeReply(reply: JsonObject, request: ModelRequest, headers: Record<string, string>): Response {
  if (!request.stream) return jsonReply(request.protocol.whole(reply, request), headers);
  const writer = request.protocol.writer(request);
  const events = wholeAsChunks(reply).map((chunk) => writer.write(chunk));
  return new Response(events.join('') + writer.end(), { headers: { ...headers, ...EVENT_STREAM } });
}
