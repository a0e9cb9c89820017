import { raceAbort } from '../../core/race-abort.ts';
import { chatReply } from '../engines/completion.ts';
import { jsonReply, type EngineReply, type EngineRequest } from '../engines/connection.ts';
import { isObject, isSet, parseObject, type JsonObject } from '../json.ts';
import { asEvent, DONE } from '../reply-formats.ts';
import type { WorkerSession } from './session.ts';
import { verlFrame, type CompletionRequest, type CompletionResponse } from './verl-frames.ts';

/**
 * A worker that speaks only verl-recipe PR 83's frames. It answers chats, whole and without ids of the prompt, so nothing can be trained
 * there; what asks for more is refused. It ends with its socket, as in verl.
 */
export class VerlSession implements WorkerSession {
  readonly frames = 'verl';
  readonly outlivesSocket = false;
  readonly #send: (message: string) => void;
  readonly #pending = new Map<string, PromiseWithResolvers<CompletionResponse>>();
  #isOver = false;

  constructor(send: (message: string) => void) {
    this.#send = send;
  }

  get isConnected(): boolean {
    return !this.#isOver;
  }

  async exchange({ method, path, body, signal }: EngineRequest): Promise<EngineReply> {
    if (method === 'GET' && path === '/v1/models') return jsonReply(200, { object: 'list', data: [] });
    if (method !== 'POST' || path !== '/v1/chat/completions') return refusal(404, `there is no ${method} ${path}`);
    const asked = parseObject(body ?? '') ?? {};
    const why = refusalOf(asked);
    if (why !== null) return refusal(400, why);
    const n = typeof asked.n === 'number' ? asked.n : 1;
    const responses = await Promise.all(Array.from({ length: n }, () => this.#complete(asked, signal)));
    const failed = responses.find(({ error }) => error);
    if (failed) return refusal(500, `the worker failed: ${failed.error}`);
    return asked.stream === true ? streamOf(asked, responses) : jsonReply(200, wholeOf(asked, responses));
  }

  receive(message: string | Uint8Array): void {
    if (typeof message !== 'string') throw new Error('a frame of the other protocol');
    const frame = verlFrame.parse(JSON.parse(message));
    if (frame.type === 'ping') return this.#send(JSON.stringify({ type: 'pong' }));
    if (frame.type === 'completion_response') this.#pending.get(frame.request_id)?.resolve(frame);
  }

  end(why: Error): void {
    this.#isOver = true;
    for (const { reject } of this.#pending.values()) reject(why);
  }

  async #complete(asked: JsonObject, signal: AbortSignal): Promise<CompletionResponse> {
    signal.throwIfAborted();
    const id = crypto.randomUUID().replaceAll('-', '');
    const answer = Promise.withResolvers<CompletionResponse>();
    this.#pending.set(id, answer);
    try {
      this.#send(JSON.stringify(requestOf(id, asked)));
      return await raceAbort(answer.promise, signal);
    } finally {
      this.#pending.delete(id);
    }
  }
}

/** Returns why these fields cannot be honoured, or null. verl's frames lose all fields that they do not have, as they do there. */
function refusalOf({ response_format: format, tool_choice: choice }: JsonObject): string | null {
  const lost =
    isObject(format) && format.type !== 'text'
      ? 'response_format'
      : isSet(choice) && choice !== 'auto' && choice !== 'none'
        ? 'tool_choice'
        : null;
  return lost === null ? null : `a relay worker with verl's frames cannot force a form: leave out ${lost}`;
}

/** The worker gets the defaults of verl's proxy for the fields that the agent left out. */
const requestOf = (id: string, asked: JsonObject): CompletionRequest => ({
  type: 'completion_request',
  request_id: id,
  session_id: id,
  messages: asked.messages,
  temperature: asked.temperature ?? 1,
  top_p: asked.top_p ?? 1,
  max_tokens: asked.max_completion_tokens ?? asked.max_tokens ?? 2048,
  stop: asked.stop ?? null,
  tools: asked.tool_choice === 'none' ? null : (asked.tools ?? null),
  repetition_penalty: asked.repetition_penalty ?? null,
  stream: false,
});

type Message = { role: 'assistant'; content: string | null; tool_calls?: unknown };

function messageOf({ content_text: content, completion_text: text, tool_calls: calls }: CompletionResponse): Message {
  const hasCalls = calls !== null && calls !== undefined && calls.length > 0;
  const shown = content ?? text ?? '';
  return {
    role: 'assistant',
    content: hasCalls && shown === '' ? null : shown,
    ...(hasCalls && { tool_calls: calls }),
  };
}

/** A worker may say `stop` where it returns tool calls (`worker_client.py`), which would end an agent's loop. */
const finishOf = (response: CompletionResponse): string =>
  response.tool_calls?.length && response.finish_reason !== 'length'
    ? 'tool_calls'
    : (response.finish_reason ?? 'stop');

function usageOf(responses: readonly CompletionResponse[]) {
  const count = responses.reduce((sum, { token_ids: ids }) => sum + (ids?.length ?? 0), 0);
  // The frames do not count the prompt.
  return { prompt_tokens: 0, completion_tokens: count, total_tokens: count };
}

const idOf = (): string => `chatcmpl-${crypto.randomUUID().replaceAll('-', '').slice(0, 12)}`;

const wholeOf = (asked: JsonObject, responses: readonly CompletionResponse[]): JsonObject =>
  chatReply({
    id: idOf(),
    model: asked.model ?? null,
    choices: responses.map((response, index) => ({
      index,
      message: messageOf(response),
      finish_reason: finishOf(response),
    })),
    usage: usageOf(responses),
  });

/** Returns the whole reply as a stream, because the agent asked for one. */
function streamOf(asked: JsonObject, responses: readonly CompletionResponse[]): EngineReply {
  const chunk = {
    id: idOf(),
    object: 'chat.completion.chunk',
    created: Math.floor(Date.now() / 1000),
    model: asked.model ?? null,
  };
  const events = responses.flatMap((response, index) => {
    const { tool_calls: calls, ...delta } = messageOf(response);
    const numbered = Array.isArray(calls)
      ? { tool_calls: calls.map((call: object, at) => ({ index: at, ...call })) }
      : {};
    return [
      { ...chunk, choices: [{ index, delta: { ...delta, ...numbered }, finish_reason: null }] },
      { ...chunk, choices: [{ index, delta: {}, finish_reason: finishOf(response) }] },
    ];
  });
  const all = [...events, { ...chunk, choices: [], usage: usageOf(responses) }];
  const text = [...all.map((event) => JSON.stringify(event)), DONE].map(asEvent).join('');
  return { status: 200, contentType: 'text/event-stream', body: new Blob([text]).stream() };
}

const refusal = (status: number, message: string): EngineReply => jsonReply(status, { error: { message } });
