import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { sampledOf, promptOf } from '../../../gateway/engines/vllm/tokens.ts';
import type { EngineConnection } from '../../../gateway/engines/connection.ts';
import { isObject, parseObject, type JsonObject } from '../../../gateway/json.ts';
import { choicesOf } from '../../../store/calls/choices.ts';
import { EngineServer } from './engine-server.ts';
import type { GeneratedReply } from '../scenarios/generated.ts';
import { isMaskProbe } from '../scenarios/mode-probe.ts';

const DONE = 'data: [DONE]';
const GENERATE = '/inference/v1/generate';

/** Passes requests to an engine unchanged, and reports which ids it was given and gave for each reply. */
export class ListeningProxy extends EngineServer {
  readonly #engine: EngineConnection;
  readonly #onReply: (generated: GeneratedReply) => void;

  constructor(engine: EngineConnection, onReply: (generated: GeneratedReply) => void) {
    super();
    this.#engine = engine;
    this.#onReply = onReply;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path, body] = [request.url ?? '', await textOf(request)];
    const asked = parseObject(body) ?? {};
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    const method = request.method === 'GET' ? 'GET' : 'POST';
    const reply = await this.#engine.send({ method, path, ...(method === 'GET' ? {} : { body }), signal: gone.signal });
    const isReply =
      reply.status === 200 &&
      !isMaskProbe(path, asked) &&
      (path === GENERATE || asked.return_token_ids === true) &&
      !/render$/.test(path);
    response.writeHead(reply.status, { 'content-type': reply.contentType });
    const decoder = new TextDecoder();
    let said = '';
    let isTold = !isReply;
    const tell = () => {
      if (!isTold) for (const generated of repliesIn(asked, said)) this.#onReply(generated);
      isTold = true;
    };
    for await (const bytes of reply.body) {
      if (!isTold) said += decoder.decode(bytes, { stream: true });
      // Report before the agent can know that the reply has ended.
      if (asked.stream === true && said.slice(-2 * bytes.length - DONE.length).includes(DONE)) tell();
      response.write(bytes);
    }
    tell();
    response.end();
  }
}

/** Reads the replies of a whole body or of a stream's events. */
function repliesIn(asked: JsonObject, said: string): GeneratedReply[] {
  const events =
    asked.stream === true
      ? said.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice(6)] : []))
      : [said];
  const replies: GeneratedReply[] = [];
  let prompt = Array.isArray(asked.token_ids) ? asked.token_ids.map(Number) : null;
  for (const event of events.map(parseObject)) {
    if (!isObject(event)) continue;
    prompt ??= promptOf(event);
    for (const choice of choicesOf(event)) {
      const reply = (replies[Number(choice.index)] ??= { prompt: [], completion: [], logprobs: [] });
      const { completion, logprobs } = sampledOf(choice);
      reply.completion.push(...(completion ?? []));
      reply.logprobs.push(...(logprobs ?? []));
    }
  }
  return replies.map((reply) => ({ ...reply, prompt: prompt ?? [] }));
}
