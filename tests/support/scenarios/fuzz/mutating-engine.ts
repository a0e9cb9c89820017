import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { EngineServer } from '../../fakes/engine-server.ts';
import { MARKS } from './good-request.ts';
import { mutateText } from './mutate.ts';
import { Random, seedOf } from './random.ts';

/**
 * Passes requests to an engine and mutates some of its replies. The seed and the mark in an agent's request decide which and how. For the
 * gateway's own questions the number of earlier ones decides, because a question that always fails would leave nothing to test.
 */
export class MutatingEngine extends EngineServer {
  readonly #upstream: string;
  readonly #seed: number;
  #questions = 0;

  constructor(upstream: string, seed: number) {
    super();
    this.#upstream = upstream;
    this.#seed = seed;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, url: path = '' } = request;
    const body = await text(request);
    const reply = await fetch(`${this.#upstream}${path}`, { method, body: method === 'POST' ? body : undefined });
    const good = await reply.text();
    const isOfAgent = body.search(MARKS) >= 0;
    const random = new Random(seedOf(this.#seed, path + (isOfAgent ? body : String(this.#questions++))));
    // Replies to the gateway's own questions are rarely mutated, because the engine would only leave the rotation.
    const isSpoiled = random.chance(isOfAgent ? 0.5 : 0.01);
    const type = isSpoiled && random.chance(0.03) ? 'text/html' : (reply.headers.get('content-type') ?? '');
    response.writeHead(
      isSpoiled && random.chance(0.03) ? random.pick([204, 201, 400, 404, 422, 500, 503]) : reply.status,
      { 'content-type': type },
    );
    if (!isSpoiled) return void response.end(good);
    const bad = mutateText(good, random);
    const cut = random.below(bad.length + 1);
    response.write(bad.subarray(0, cut));
    await new Promise((resolve) => setImmediate(resolve));
    if (random.chance(0.1)) response.destroy();
    else response.end(bad.subarray(cut));
  }
}
