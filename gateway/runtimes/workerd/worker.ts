import { errorResponse, toFailure } from '../../failure.ts';
import { protocolOf } from '../../protocols/all.ts';
import { WORKER_SOCKETS } from '../../relay/hello.ts';
import { answer } from './answer.ts';
import { Isolate } from './isolate.ts';
import { readEnvironment } from './settings.ts';

type Context = { waitUntil: (work: Promise<unknown>) => void };

const isolate = new Isolate();

export { RelayObject } from './relay-object.ts';

/** The gateway as a Cloudflare Worker: the same app as on Node, with connections that live as long as their request. */
export default {
  async fetch(request: Request, env: Record<string, unknown>, context: Context): Promise<Response> {
    try {
      const options = readEnvironment(env);
      if (options.relay && isOfRelay(new URL(request.url).pathname)) return await options.relay.fetch(request);
      const { response, over } = answer(request, options, isolate);
      context.waitUntil(over);
      return await response;
    } catch (error) {
      return errorResponse(toFailure(error), protocolOf(new URL(request.url).pathname));
    }
  },
};

const isOfRelay = (path: string): boolean => path === WORKER_SOCKETS || path.startsWith('/relay/');
