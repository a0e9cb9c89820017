import { isOnlyUsage } from '../chat/hide.ts';
import { errorBody } from '../failure.ts';
import { asEvent, DONE } from '../sse.ts';
import type { Protocol } from './protocol.ts';

/** What OpenAI's two completions have in common: replies and chunks are the engine's own, and a stream ends by `[DONE]`. */
export const openai: Omit<Protocol, 'name' | 'path' | 'parse'> = {
  whole: (reply) => reply,
  writer: ({ wants }) => ({
    write: (chunk) => (isOnlyUsage(chunk) && !wants.usage ? '' : asEvent(JSON.stringify(chunk))),
    pass: asEvent,
    end: () => asEvent(DONE),
    fail: (failure) => asEvent(JSON.stringify(errorBody(failure))),
  }),
  errorBody,
};
