import { Failure } from '../../failure.ts';
import type { ModelRequest } from '../model-request.ts';
import { parseAs } from '../parse-as.ts';
import type { Protocol, ProtocolRequest } from '../protocol.ts';
import { contentErrorBody } from './errors.ts';
import { ContentEvents } from './events.ts';
import { contentReply } from './from-chat.ts';
import { callIn, COUNT_PATHS, GENERATE_PATHS, isMethod } from './paths.ts';
import { countRequest, generateRequest, thoughtsRequest } from './shape.ts';
import { chatBodyOf, leftOut, promptFieldsOf } from './to-chat.ts';

/** Gemini's `generateContent` and `streamGenerateContent`. The URL has the model and says whether the reply is streamed. */
export const gemini: Protocol = {
  name: 'gemini',
  path: '/v1beta/models/policy:generateContent',
  paths: GENERATE_PATHS,
  serves: isMethod,
  keyHeader: 'x-goog-api-key',
  idHeader: 'x-request-id',
  parse: ({ url, bytes }) => {
    const { model, stream, isSse } = callIn(url);
    if (stream && !isSse) throw onlyEvents();
    const { asked, checked } = parseAs(generateRequest, bytes);
    const { candidateCount, maxOutputTokens, responseLogprobs } = checked.generationConfig ?? {};
    return {
      protocol: gemini,
      kind: 'chat',
      body: chatBodyOf(checked, { model, stream }),
      asked,
      leftOut: leftOut(checked),
      model,
      stream,
      n: candidateCount ?? 1,
      maxTokens: maxOutputTokens ?? null,
      wants: { logprobs: responseLogprobs === true, tokenIds: false, usage: true },
    };
  },
  whole: (reply, request, callId) => contentReply(reply, callId, shownOf(request)),
  writer: (request, callId) => new ContentEvents(callId, shownOf(request)),
  errorBody: contentErrorBody,
  countTokens: {
    paths: COUNT_PATHS,
    promptOf: promptToCount,
    reply: (totalTokens) => ({ totalTokens }),
  },
};

/** Like Gemini, shows the model's reasoning only to agents that ask for it. */
function shownOf({ asked }: ModelRequest): { showsThoughts: boolean } {
  const { data } = thoughtsRequest.safeParse(asked);
  return { showsThoughts: data?.generationConfig?.thinkingConfig?.includeThoughts === true };
}

function promptToCount({ bytes }: ProtocolRequest) {
  const { contents, generateContentRequest: whole } = parseAs(countRequest, bytes).checked;
  return promptFieldsOf(whole ?? { contents: contents ?? [] });
}

const onlyEvents = () =>
  new Failure(400, 'invalid_request', 'a streamed reply comes as server-sent events only: add ?alt=sse to the URL', {
    retryable: false,
  });
