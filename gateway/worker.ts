import { errorResponse, toFailure } from './failure.ts';
import { protocolOf } from './protocols/all.ts';
import { answer } from './worker/answer.ts';
import { Isolate } from './worker/isolate.ts';
import { readEnvironment } from './worker/settings.ts';

type Context = { waitUntil: (work: Promise<unknown>) => void };

const isolate = new Isolate();

/** The gateway as a Cloudflare Worker: the same app as on Node, with connections that live as long as their request. */
export default {
  async fetch(request: Request, env: Record<string, unknown>, context: Context): Promise<Response> {
    try {
      const { response, over } = answer(request, readEnvironment(env), isolate);
      context.waitUntil(over);
      return await response;
    } catch (error) {
      return errorResponse(toFailure(error), protocolOf(new URL(request.url).pathname));
    }
  },
};
