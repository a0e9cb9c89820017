import type { JsonObject } from '../../json.ts';
import { asProtocolId } from '../call-ids.ts';
import { argumentsIn, onlyChoice, parseMessage } from '../message-parts.ts';
import { usageOf, type Usage } from '../usage.ts';
import { stopReasonOf } from './stop-reason.ts';

/** Converts a chat reply to Anthropic's message. */
export function messageOf(reply: JsonObject, callId: string): JsonObject {
  const choice = onlyChoice(reply);
  const { reasoning, text, tools } = parseMessage(choice.message);
  const content: JsonObject[] = [];
  if (reasoning !== '') content.push({ type: 'thinking', thinking: reasoning, signature: signatureOf(callId) });
  // Clients expect a block even in an empty reply.
  if (text !== '' || (reasoning === '' && tools.length === 0)) content.push({ type: 'text', text });
  for (const { id, name, arguments: given } of tools)
    content.push({ type: 'tool_use', id, name, input: argumentsIn(given) });
  return {
    ...messageHead(callId, reply.model),
    content,
    ...stopReasonOf(choice.finish_reason, choice.stop_reason, { callsTools: tools.length > 0, isWhole: true }),
    usage: messageUsage(usageOf(reply.usage)),
  };
}

export const messageHead = (callId: string, model: unknown): JsonObject => ({
  id: asProtocolId('msg', callId),
  type: 'message',
  role: 'assistant',
  model,
});

/** Clients send the signature back with its block. It only has to be there. */
export const signatureOf = (callId: string): string => callId.replaceAll('-', '');

/** Returns the usage as Anthropic counts it, with cached tokens apart. */
export function messageUsage({ prompt, completion, cached }: Usage): JsonObject {
  return {
    input_tokens: Math.max(0, prompt - (cached ?? 0)),
    ...(cached === null ? {} : { cache_read_input_tokens: cached }),
    output_tokens: completion,
  };
}
