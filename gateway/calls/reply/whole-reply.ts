import { EVENT_STREAM, jsonReply } from '../../reply-formats.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { callHeaders } from '../../request-id.ts';
import type { ModelRequest } from '../../protocols/model-request.ts';
import { wholeAsChunks } from '../../engines/completion.ts';

/** Sends a whole reply of call `id` in the form that was asked for. */
export function wholeReply(
  id: string,
  reply: JsonObject,
  request: ModelRequest,
  more: Record<string, string> = {},
): Response {
  const headers = { ...callHeaders(request.protocol, id), ...more };
  if (!request.stream) return jsonReply(request.protocol.whole(reply, request, id), headers);
  const writer = request.protocol.writer(request, id);
  const prompt =
    isObject(reply.usage) && typeof reply.usage.prompt_tokens === 'number' ? reply.usage.prompt_tokens : null;
  const events = wholeAsChunks(reply).map((chunk) => writer.write(chunk, prompt));
  return new Response(events.join('') + writer.end(), { headers: { ...headers, ...EVENT_STREAM } });
}
