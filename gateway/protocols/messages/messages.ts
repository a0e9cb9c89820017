import { parseAs } from '../parse-as.ts';
import { apiPaths, routeAt } from '../paths.ts';
import type { Protocol } from '../protocol.ts';
import { messageErrorBody } from './errors.ts';
import { MessageEvents } from './events.ts';
import { messageOf } from './from-chat.ts';
import { countRequest, messagesRequest } from './shape.ts';
import { chatBodyOf, leftOut, promptFieldsOf } from './to-chat.ts';

/** Anthropic's Messages. */
export const messages: Protocol = {
  name: 'messages',
  ...routeAt('/v1/messages'),
  keyHeader: 'x-api-key',
  idHeader: 'request-id',
  parse: ({ bytes }) => {
    const { checked } = parseAs(messagesRequest, bytes);
    return {
      protocol: messages,
      kind: 'chat',
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
  countTokens: {
    paths: apiPaths('/v1/messages/count_tokens'),
    promptOf: ({ bytes }) => {
      const {
        tool_choice: _,
        parallel_tool_calls: __,
        ...prompt
      } = promptFieldsOf(parseAs(countRequest, bytes).checked);
      return prompt;
    },
    reply: (input_tokens) => ({ input_tokens }),
  },
};
