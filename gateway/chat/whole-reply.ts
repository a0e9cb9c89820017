import type { JsonObject } from '../json.ts';
import { jsonReply } from '../json-reply.ts';
import { asEvent, DONE, EVENT_STREAM } from '../sse.ts';
import { isOnlyUsage } from './hide.ts';
import type { ModelRequest } from './request.ts';
import { wholeAsChunks } from './whole-as-chunks.ts';

/** A reply that is there whole, in the form that was asked for. */
export function wholeReply(reply: JsonObject, { stream, wants }: ModelRequest, headers: Record<string, string>): Response {
  if (!stream) return jsonReply(reply, headers);
  const chunks = wholeAsChunks(reply).filter((chunk) => !isOnlyUsage(chunk) || wants.usage);
  const events = [...chunks.map((chunk) => JSON.stringify(chunk)), DONE].map(asEvent);
  return new Response(events.join(''), { headers: { ...headers, ...EVENT_STREAM } });
}
