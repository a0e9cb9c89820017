import { stringifyExact } from '../../../core/exact-json.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import type { Wants } from '../../engines/completion.ts';
import { errorBody } from '../../failure.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { asEvent, DONE } from '../../reply-formats.ts';
import type { Protocol } from '../protocol.ts';

/** The common part of OpenAI's two kinds of completions: replies and chunks are the internal ones, and a stream ends by `[DONE]`. */
export const openai: Omit<Protocol, 'name' | 'path' | 'paths' | 'serves' | 'parse'> = {
  idHeader: 'x-request-id',
  whole: (reply) => reply,
  writer: ({ wants }) => ({
    write: (chunk) => (isForTheRecord(chunk, wants) ? '' : asEvent(stringifyExact(chunk))),
    pass: ({ shown }) => asEvent(shown),
    end: () => asEvent(DONE),
    fail: (failure) => asEvent(JSON.stringify(errorBody(failure))),
  }),
  errorBody,
};

/** True when the engine sends this chunk only because the gateway asks for counts and ids, so that nothing is left of it for the agent. */
function isForTheRecord(chunk: JsonObject, { usage, logprobs, tokenIds }: Wants): boolean {
  const choices = choicesOf(chunk);
  if (choices.length === 0) return !usage && Array.isArray(chunk.choices);
  return (
    !logprobs &&
    !tokenIds &&
    choices.every(({ delta, finish_reason }) => isObject(delta) && Object.keys(delta).length === 0 && !finish_reason)
  );
}
