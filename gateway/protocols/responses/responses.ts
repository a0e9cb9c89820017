import { stringifyExact } from '../../../core/exact-json.ts';
import { errorBody, Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import type { ModelRequest, RecordedCalls } from '../model-request.ts';
import { callOfId } from '../call-ids.ts';
import { parseAs } from '../parse-as.ts';
import { routeAt } from '../paths.ts';
import type { Protocol } from '../protocol.ts';
import { onlyChoice } from '../message-parts.ts';
import { ResponseEvents } from './events.ts';
import { outputOf } from './items.ts';
import { withReferences } from './references.ts';
import { responseObject } from './response.ts';
import { responsesRequest, type ResponsesRequest } from './shape.ts';
import { chatBodyOf, leftOut, wantsLogprobs } from './to-chat.ts';
import { namedTools, type NamedTool } from './tools.ts';

/** OpenAI's Responses. The response that a request continues is read from the record by its id. */
export const responses: Protocol = {
  name: 'responses',
  ...routeAt('/v1/responses'),
  idHeader: 'x-request-id',
  parse: ({ bytes }) => {
    const { asked, checked } = parseAs(responsesRequest, bytes);
    const request: ModelRequest = {
      protocol: responses,
      kind: 'chat',
      body: chatBodyOf(checked),
      asked,
      leftOut: leftOut(checked),
      kept: checked.instructions ? INSTRUCTED : {},
      model: checked.model ?? null,
      stream: checked.stream === true,
      n: 1,
      maxTokens: checked.max_output_tokens ?? null,
      wants: { logprobs: wantsLogprobs(checked), tokenIds: false, usage: true },
    };
    const { previous_response_id: previous, input } = checked;
    const names = previous || (typeof input !== 'string' && input.some(({ type }) => type === 'item_reference'));
    return names ? { ...request, fromRecord: (recorded) => complete(request, checked, recorded) } : request;
  },
  whole: (reply, { asked = {} }, callId) => {
    const choice = onlyChoice(reply);
    const status = choice.finish_reason === 'length' ? 'incomplete' : 'completed';
    return responseObject(asked, {
      callId,
      created: reply.created,
      model: reply.model,
      status,
      output: outputOf(choice, toolsOf(asked), callId),
      usage: reply.usage,
    });
  },
  writer: ({ asked = {} }, callId) => new ResponseEvents(callId, asked, toolsOf(asked)),
  errorBody,
};

/** Marks that the first message came from `instructions`, which apply to one response and not to those that continue it. */
const INSTRUCTED = { instructions_first: true };

async function complete(
  request: ModelRequest,
  asked: ResponsesRequest,
  recorded: RecordedCalls,
): Promise<ModelRequest> {
  const { previous_response_id: previous, instructions } = asked;
  const input = await withReferences(asked.input, namedTools(asked.tools ?? []), recorded);
  const body = chatBodyOf({ ...asked, input });
  if (!previous) return { ...request, body };
  const callId = callOfId('resp', previous);
  const earlier = callId === null ? null : await recorded.call(callId);
  if (!earlier) throw unknownResponse(previous);
  const own = listed(body);
  const history = listed(earlier.request).slice(earlier.request.instructions_first === true ? 1 : 0);
  for (const message of [...history, earlier.message]) recorded.gain(stringifyExact(message).length);
  const added = instructions ? 1 : 0;
  return {
    ...request,
    body: { ...body, messages: [...own.slice(0, added), ...history, earlier.message, ...own.slice(added)] },
  };
}

const listed = ({ messages }: JsonObject): unknown[] => (Array.isArray(messages) ? messages : []);

function toolsOf(asked: JsonObject): NamedTool[] {
  const { data } = responsesRequest.shape.tools.safeParse(asked.tools);
  return namedTools(data ?? []);
}

const unknownResponse = (id: string) =>
  new Failure(
    400,
    'previous_response_not_found',
    `previous_response_id: this attempt of the trial has no response ${JSON.stringify(id.slice(0, 100))}`,
    { retryable: false, item: 'previous_response_id' },
  );
