import { parseAs } from '../parse-as.ts';
import type { Protocol } from '../protocol.ts';
import { messageErrorBody } from './errors.ts';
import { MessageEvents } from './events.ts';
import { messageOf } from './from-chat.ts';
import { messagesRequest } from './shape.ts';
import { chatBodyOf, leftOut } from './to-chat.ts';

/** Anthropic's Messages. */
export const messages: Protocol = {
  name: 'messages',
  path: '/v1/messages',
  parse: (bytes) => {
    const { checked } = parseAs(messagesRequest, bytes);
    return {
      protocol: messages,
      route: '/v1/chat/completions',
      body: chatBodyOf(checked),
      leftOut: leftOut(checked),
      model: checked.model ?? null,
      stream: checked.stream === true,
      n: 1,
      maxTokens: checked.max_tokens,
      wants: { logprobs: false, tokenIds: false, usage: true },
    };
  },
  whole: (reply, _request, callId) => messageOf(reply, callId),
  writer: (_request, callId) => new MessageEvents(callId),
  errorBody: messageErrorBody,
};
