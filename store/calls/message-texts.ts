import { isObject } from '../../core/json.ts';
import { choicesOf } from './choices.ts';

/** The text of one message, of one of its tool calls, or of what it reasoned. */
export type MessageText = { role: string; text: string };

/** Returns the texts of the messages that a stored call brings itself, and those of its replies. Exact numbers do not matter here. */
export function messageTexts({
  request,
  response,
}: {
  request: Uint8Array;
  response: Uint8Array | null;
}): MessageText[] {
  const asked: unknown = JSON.parse(new TextDecoder().decode(request));
  const replied: unknown = response && JSON.parse(new TextDecoder().decode(response));
  return [...(isObject(asked) ? textsOfRequest(asked) : []), ...(isObject(replied) ? textsOfReply(replied) : [])];
}

function textsOfRequest({ lists, prompt }: Record<string, unknown>): MessageText[] {
  const [, added]: unknown[] = isObject(lists) && Array.isArray(lists.messages) ? lists.messages : [];
  const messages: unknown[] = Array.isArray(added) ? added : [];
  const [, text]: unknown[] = Array.isArray(prompt) ? prompt : [];
  return [
    ...messages.flatMap((item) => (isObject(item) ? textsOfMessage(item.is) : [])),
    ...(typeof text === 'string' ? [{ role: 'user', text }] : []),
  ];
}

const textsOfReply = (response: Record<string, unknown>): MessageText[] =>
  choicesOf(response).flatMap(({ message, text }) =>
    isObject(message) ? textsOfMessage(message) : typeof text === 'string' ? [{ role: 'assistant', text }] : [],
  );

function textsOfMessage(message: unknown): MessageText[] {
  if (!isObject(message)) return [];
  const role = typeof message.role === 'string' ? message.role : 'message';
  const parts: unknown[] = Array.isArray(message.content) ? message.content : [message.content];
  const called: unknown[] = Array.isArray(message.tool_calls) ? message.tool_calls : [];
  const functions = [...called.map((call) => (isObject(call) ? call.function : null)), message.function_call];
  const texts: unknown[] = [
    // Some engines send the same text in both fields.
    ...new Set([message.reasoning_content, message.reasoning]),
    ...parts.map((part) => (isObject(part) ? (part.text ?? part.refusal) : part)),
    message.refusal,
    ...functions.map((named) => {
      const { name, arguments: given } = isObject(named) ? named : {};
      return typeof given === 'string' ? `${String(name)} ${given}` : name;
    }),
  ];
  return texts.flatMap((text) => (typeof text === 'string' ? [{ role, text }] : []));
}
