import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import type { LogprobsMode } from '../../../gateway/engines/engine.ts';
import { EngineServer, json } from './engine-server.ts';
import { probeReply } from '../scenarios/mode-probe.ts';

export type Fault =
  | 'none'
  | 'status_500'
  | 'dead'
  | 'status_503'
  | 'context_too_long'
  | 'bad_request'
  | 'no_tool_parser'
  | 'cut'
  | 'cut_head'
  | 'error_event'
  | 'hang'
  | 'no_ids'
  | 'wrong_lengths'
  | 'miscounted'
  | 'not_json'
  | 'refuse';

export type ReceivedRequest = {
  path: string;
  body: Record<string, unknown>;
  headers: IncomingHttpHeaders;
  aborted: boolean;
};

const PROMPT = [1, 9690, 198];
/** The text of each token. The second has a character of four bytes. */
const WORDS = ['Hel', 'lo 🦀', ' wor', 'ld', '\u0000!'];
const IDS = [61, 8012, 17, 1073, 2];
const LOGPROBS = [-4.25, -2.5, -0.125, -1, -0.5];

/** An engine with vLLM's wire format that can fail in chosen ways. Replies and chunks have the form of vLLM 0.32's. */
export class FakeEngine extends EngineServer {
  weightVersion = 'default';
  /** Its page of metrics. Null: it has none. */
  metrics: string | null = null;
  /** The names of the LoRA adapters that it has loaded. */
  adapters: string[] = [];
  fault: Fault = 'none';
  /** The result of its health check. */
  isHealthy = true;
  logprobsMode: LogprobsMode = 'processed_logprobs';
  /** The message of its error event. */
  lastWords: unknown = 'engine core died';
  /** Milliseconds before each token. */
  delay = 0;
  /** Sends a stream one byte a write. */
  bytewise = false;
  /** Runs between the last token and the end of a reply. */
  beforeEnd: () => Promise<void> | void = () => {};
  readonly seen: ReceivedRequest[] = [];
  /** All requests that it got, also those for routes that it does not have, such as `POST /pause`. */
  readonly asked: string[] = [];

  override async start(weightVersion = 'default'): Promise<this> {
    this.weightVersion = weightVersion;
    return super.start();
  }

  /** The last chat request. */
  get last(): ReceivedRequest {
    const chat = this.seen.findLast((request) => request.path === '/v1/chat/completions');
    if (!chat) throw new Error('the engine saw no chat request');
    return chat;
  }

  /** The reply of an engine that knows more than this one; undefined: it does not. */
  protected ownReply(_path: string, _body: Record<string, unknown>): unknown {
    return undefined;
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    this.asked.push(`${request.method} ${path}`);
    if (path === '/health')
      return this.fault === 'hang'
        ? undefined
        : json(response, {}, this.isHealthy && this.fault !== 'dead' ? 200 : 503);
    if (path === '/metrics') {
      if (this.metrics === null) return json(response, { detail: 'Not Found' }, 404);
      return void response.writeHead(200, { 'content-type': 'text/plain; version=1.0.0' }).end(this.metrics);
    }
    if (path === '/weight_info') return json(response, { weight_version: this.weightVersion });
    if (path === '/v1/models') {
      const model = {
        id: 'policy',
        object: 'model',
        created: 7,
        owned_by: 'vllm',
        root: '/secret/path',
        max_model_len: 2048,
      };
      return json(response, {
        object: 'list',
        data: [model, ...this.adapters.map((id) => ({ ...model, id, parent: 'policy', max_model_len: null }))],
      });
    }
    const body = JSON.parse(await text(request)) as Record<string, unknown>;
    if (body.model !== undefined && !['policy', ...this.adapters].includes(String(body.model)))
      return json(response, error('NotFoundError', `The model ${String(body.model)} does not exist.`, 404), 404);
    const own = this.ownReply(path, body);
    if (own !== undefined) return json(response, own);
    const probe = probeReply(path, body, this.logprobsMode);
    if (probe) return json(response, probe);
    if (path === '/v1/chat/completions/render') return json(response, error('NotFoundError', 'Not Found', 404), 404);
    const seen = { path, body, headers: request.headers, aborted: false };
    this.seen.push(seen);
    response.on('close', () => {
      seen.aborted = !response.writableFinished;
    });
    const { fault } = this;
    if (fault === 'refuse') return void request.socket.destroy();
    if (fault === 'status_500' || fault === 'dead')
      return json(response, error('EngineDeadError', 'engine core died', 500), 500);
    if (fault === 'status_503') return json(response, error('ServiceUnavailableError', 'the queue is full', 503), 503);
    if (fault === 'bad_request') return json(response, error('BadRequestError', 'top_k must be an integer', 400), 400);
    if (fault === 'no_tool_parser') {
      const message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set';
      return json(response, error('BadRequestError', message, 400), 400);
    }
    if (fault === 'context_too_long') {
      const message =
        "This model's maximum context length is 2048 tokens. However, your prompt contains 4000 input tokens.";
      return json(response, { error: { ...error('BadRequestError', message, 400).error, param: 'input_tokens' } }, 400);
    }
    if (fault === 'hang' && body.stream !== true) return;
    if (fault === 'not_json') {
      response.writeHead(200, { 'content-type': body.stream === true ? 'text/event-stream' : 'application/json' });
      return void response.end(body.stream === true ? 'data: <html>\n\n' : '<html>');
    }
    return body.stream === true ? this.#stream(body, response) : this.#whole(body, response);
  }

  async #whole(body: Record<string, unknown>, response: ServerResponse): Promise<void> {
    const count = this.#count(body);
    await pause(this.delay * count);
    await this.beforeEnd();
    const choice = {
      index: 0,
      message: { role: 'assistant', content: WORDS.slice(0, count).join(''), reasoning: null, not_yet_known: 1 },
      logprobs: { content: this.#logprobs(0, count) },
      finish_reason: count < WORDS.length ? 'length' : 'stop',
      stop_reason: null,
      ...this.#versions(count),
      ...(this.fault === 'no_ids' ? {} : { token_ids: IDS.slice(0, count) }),
    };
    const ids = this.fault === 'no_ids' ? {} : { prompt_token_ids: PROMPT };
    const reply = {
      ...head('chat.completion'),
      choices: [choice],
      usage: this.#usage(count),
      ...ids,
      kv_transfer_params: null,
    };
    if (this.fault !== 'cut') return json(response, reply);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write(JSON.stringify(reply).slice(0, 40));
    await pause(20);
    response.destroy();
  }

  async #stream(body: Record<string, unknown>, response: ServerResponse): Promise<void> {
    const count = this.#count(body);
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
    if (this.fault === 'cut_head') {
      response.flushHeaders();
      await pause(200);
      return void response.destroy();
    }
    const ids = this.fault === 'no_ids' ? {} : { prompt_token_ids: PROMPT };
    const first = { index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null };
    await this.#send(response, { ...head('chat.completion.chunk'), choices: [first], ...ids, prompt_text: null });
    for (let i = 0; i < count; i++) {
      if (this.delay) await pause(this.delay);
      if (response.destroyed) return;
      if (i === 2 && this.fault === 'cut') {
        await pause(20);
        return void response.destroy();
      }
      if (i === 2 && this.fault === 'hang') return;
      if (i === 2 && this.fault === 'error_event') {
        await this.#send(response, error('InternalServerError', this.lastWords, 500));
        break;
      }
      const last = i === count - 1;
      if (last) await this.beforeEnd();
      const choice = {
        index: 0,
        delta: { content: WORDS[i] },
        logprobs: { content: this.#logprobs(i, i + 1) },
        finish_reason: last ? (count < WORDS.length ? 'length' : 'stop') : null,
        ...(last ? this.#versions(count) : {}),
        ...(this.fault === 'no_ids' ? {} : { token_ids: [IDS[i]] }),
        not_yet_known: 1,
      };
      await this.#send(response, { ...head('chat.completion.chunk'), choices: [choice] });
    }
    const { stream_options } = body;
    if (stream_options && (stream_options as { include_usage?: boolean }).include_usage) {
      await this.#send(response, { ...head('chat.completion.chunk'), choices: [], usage: this.#usage(count) });
    }
    response.end('data: [DONE]\n\n');
  }

  async #send(response: ServerResponse, chunk: unknown): Promise<void> {
    const bytes = Buffer.from(`data: ${JSON.stringify(chunk)}\r\n\r\n`);
    if (!this.bytewise) return void response.write(bytes);
    for (const byte of bytes) {
      response.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** With adapters this is still the base's weight version, because vLLM has no other. */
  #versions(count: number) {
    return this.adapters.length > 0 ? { weight_versions: [{ version: this.weightVersion, start: 0, end: count }] } : {};
  }

  #count(body: Record<string, unknown>): number {
    return Math.min(typeof body.max_tokens === 'number' ? body.max_tokens : WORDS.length, WORDS.length);
  }

  #usage(count: number) {
    const completion_tokens = this.fault === 'miscounted' ? count + 1 : count;
    return { prompt_tokens: PROMPT.length, completion_tokens, total_tokens: PROMPT.length + completion_tokens };
  }

  #logprobs(from: number, to: number) {
    const skip = this.fault === 'wrong_lengths' && to > 1 ? 1 : 0;
    return WORDS.slice(from, to - skip).map((token, i) => ({
      token,
      logprob: LOGPROBS[from + i],
      bytes: null,
      top_logprobs: [],
    }));
  }
}

const head = (object: string) => ({
  id: 'chatcmpl-1',
  object,
  created: 7,
  model: 'policy',
  system_fingerprint: 'fake',
});

const error = (type: string, message: unknown, code: number) => ({ error: { message, type, param: null, code } });
