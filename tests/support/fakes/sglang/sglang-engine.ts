import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import type { GeneratedReply } from '../../scenarios/generated.ts';
import { json } from '../engine-server.ts';
import { hasHalf, NOT_TOKENIZED, ToyEngine, type Cue, type Span, type ToyBody } from '../toy-engine.ts';
import { decode, decodeWithSpecial, encode, END, misspell } from '../toy-tokenizer.ts';
import { ChatStream, chatReply, chatRequest, promptOf, type Parsers } from './chat.ts';
import { Adapters } from './adapters.ts';
import { Manager } from './manager.ts';
import type { Output } from './output.ts';
import { parseReasoning, parseToolCalls } from './parsers.ts';
import { contractError, generateRequest, isModeProbe, Refusal } from './requests.ts';
import { Scheduler } from './scheduler.ts';
import type { Sequence } from './sequence.ts';

type Body = Record<string, unknown>;

/** Answers as SGLang 0.5.23 does, over the toy tokenizer. What it follows, and what it leaves out, is in this folder's README. */
export class SglangEngine extends ToyEngine {
  /** False when its replies are as the script says, however short they should be. */
  hasLimits = true;
  /** Milliseconds before each step of the scheduler. */
  pace = 0;
  maxRunning = 1_000;
  /** `--max-queued-requests`. */
  maxQueued: number | null = null;
  /** `--incremental-streaming-output`. */
  incremental = false;
  /** True when it takes reasoning out of the text. */
  thinks = false;
  /** `--enable-metrics`. */
  hasMetrics = false;
  /** `SGLANG_RETURN_ORIGINAL_LOGPROB`. */
  originalLogprobs = false;
  /** `--enable-fp32-lm-head`. */
  fp32Head = false;
  modelPath = 'toy';
  servedModelName = 'policy';
  isStarting = false;
  /** Milliseconds between two looks of a health check for a sign of life, and the time after which it gives up. */
  health = { every: 1_000, until: 20_000 };
  /** Milliseconds in which a lost client of a reply that is not streamed is noticed. */
  noticeMs = 4_000;
  /** Returns the weights that sampled a reply. By default those that the engine had at each token. */
  spans: ((tokens: number) => Span[]) | null = null;
  /** The ids that could have been sampled in place of this one. */
  mask: (id: number) => number[] = (id) => [id];
  /** The log-probability of a sampled token among those of its mask. */
  maskedLogprob: (id: number) => number = (id) => this.logprob(id);
  /** `--sampling-mask-max-tokens`. */
  maskTokens = 4_096;
  /** The experts that a token's layers chose. Null: it does not capture them (`--enable-return-routed-experts`). */
  experts: ((id: number) => number[]) | null = null;
  readonly adapters = new Adapters();
  /** Loads a model's folder. Returns why it cannot, or null. */
  loadWeights: (path: string) => string | null | Promise<string | null> = () => null;
  /** The tokens of the prompts of requests that have ended, by how they were sent, and those of them that were cached. */
  readonly #ended = { whole: 0, streamed: 0, cached: 0 };
  readonly scheduler = new Scheduler(() => this);
  readonly #manager = new Manager(this.scheduler, {
    plan: (request, i) => {
      if (isModeProbe(request)) return { tokens: misspell('y'), ends: true };
      const { cue } = request;
      const { spelled, ends } = this.lineOf(cue, i, { text: 'nothing to say' });
      return { tokens: spelled, ends };
    },
    logprob: (id) => this.logprob(id),
    isOriginal: () => this.originalLogprobs,
    mask: (id) => this.mask(id),
    maskedLogprob: (id) => this.maskedLogprob(id),
    experts: (id) => this.experts?.(id) ?? null,
    maskTokens: () => this.maskTokens,
    adapters: this.adapters,
    spans: (sequence) => this.#spansOf(sequence),
    context: () => this.context,
    hasLimits: () => this.hasLimits,
    isIncremental: () => this.incremental,
    begin: (sequence, request) => {
      if (isModeProbe(request)) return () => this.#count(sequence);
      const { cue, ids } = request;
      const generated: GeneratedReply = { prompt: ids, completion: sequence.output, logprobs: [] };
      this.log(cue, generated);
      return () => {
        if (cue !== HEALTH) this.#count(sequence);
        Object.assign(generated, {
          logprobs: sequence.output.map(this.logprob),
          versions: this.versionsOf(this.#spansOf(sequence)),
        });
      };
    },
  });

  constructor() {
    super();
    // A test sets the weight version as it does for other engines.
    Object.defineProperty(this, 'weightVersion', {
      get: () => this.#manager.weightVersion,
      set: (version: string) => {
        this.#setWeightVersion(version);
      },
    });
  }

  #setWeightVersion(version: string): void {
    this.scheduler.setWeightVersion(version);
    this.#manager.weightVersion = version;
  }

  #count({ prompt, cachedTokens, stream, endedInQueue }: Sequence): void {
    if (endedInQueue) return;
    this.#ended[stream ? 'streamed' : 'whole'] += prompt.length;
    this.#ended.cached += cachedTokens;
  }

  #spansOf(sequence: Sequence): Span[] {
    return this.spans?.(sequence.output.length) ?? sequence.spans(this.scheduler.weightVersion);
  }

  get #parsers(): Parsers {
    return { toolCalls: this.parses, reasoning: this.thinks };
  }

  protected override async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname: path } = new URL(request.url ?? '', 'http://engine');
    const text = await textOf(request);
    const body = JSON.parse(text || '{}') as ToyBody;
    if (hasHalf(body)) return json(response, errorBody(NOT_TOKENIZED, 400), 400);
    await this.before({ path, body, response });
    if (response.destroyed) return;
    const fault = this.fault(path);
    if (fault === 'cut') return void request.socket.destroy();
    if (fault !== null) return json(response, errorBody('at fault on purpose', fault), fault);
    const left = new AbortController();
    response.on('close', () => {
      if (response.writableFinished) return;
      if (body.stream === true) return left.abort();
      void setTimeout(this.noticeMs, null, { ref: false }).then(() => left.abort());
    });
    const route = ROUTES[path];
    if (!route) return json(response, { detail: 'Not Found' }, 404);
    if (!route.methods.includes(request.method ?? '')) return json(response, { detail: 'Method Not Allowed' }, 405);
    try {
      await this[route.call](body, response, left.signal);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (response.headersSent || response.destroyed) return void response.end();
      const isNative = path === '/generate' && error.status === 400;
      json(
        response,
        isNative ? { error: { message: error.message } } : errorBody(error.message, error.status),
        error.status,
      );
    }
  }

  async generate(body: Body, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const violation = contractError(body);
    if (violation !== null) return json(response, { error: violation }, 400);
    if (body.stream !== true) {
      const request = generateRequest(body, encode);
      const outputs = await this.#manager.run(request, signal);
      return json(response, request.n === 1 ? outputs[0] : outputs);
    }
    const send = openStream(response);
    try {
      await this.#manager.run(generateRequest(body, encode), signal, send);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      send({ error: { message: error.message, type: 'invalid_request_error', code: error.status, retryable: false } });
    }
    response.end('data: [DONE]\n\n');
  }

  async chat(body: Body, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const request = chatRequest(body);
    if (!request.stream)
      return json(response, chatReply(body, await this.#manager.run(request, signal), this.#parsers));
    const stream = new ChatStream(body, this.#parsers);
    let send: ((chunk: unknown) => void) | null = null;
    await this.#manager.run(request, signal, (output: Output) => {
      send ??= openStream(response);
      stream.chunks(output).forEach(send);
    });
    send ??= openStream(response);
    stream.end().forEach(send);
    response.end('data: [DONE]\n\n');
  }

  tokenize(body: Body, response: ServerResponse): void {
    if ((body.prompt === undefined) === (body.messages === undefined))
      throw new Refusal("Exactly one of 'prompt' or 'messages' must be provided.");
    const tokens = body.messages === undefined ? encode(String(body.prompt)) : promptOf(body);
    // This is the tokenizer's limit, not the server's.
    json(response, { tokens, count: tokens.length, max_model_len: 1_000_000 });
  }

  detokenize(body: Body, response: ServerResponse): void {
    const tokens = Array.isArray(body.tokens) ? body.tokens.filter((each) => typeof each === 'number') : [];
    json(response, { text: (body.skip_special_tokens === false ? decodeWithSpecial : decode)(tokens) });
  }

  parseFunctionCall({ text, tools, tool_call_parser: parser }: Body, response: ServerResponse): void {
    if (parser !== 'hermes') throw new Refusal(`Unsupported tool_call_parser: ${String(parser)}`);
    const found = parseToolCalls(String(text), tools);
    json(response, { normal_text: found.text, calls: found.calls });
  }

  separateReasoning({ text, reasoning_parser: parser }: Body, response: ServerResponse): void {
    if (parser !== 'qwen3') throw new Refusal(`Unsupported model type: ${String(parser)}`);
    const found = parseReasoning(String(text));
    json(response, { reasoning_text: found.reasoning, text: found.text });
  }

  models(_: Body, response: ServerResponse): void {
    const id = this.servedModelName;
    const card = { id, object: 'model', created: 1, owned_by: 'sglang', root: id, parent: null };
    const adapters = this.adapters.loaded.map(({ name, path }) => ({
      ...card,
      id: name,
      root: path,
      parent: id,
      max_model_len: null,
    }));
    json(response, { object: 'list', data: [{ ...card, max_model_len: this.context }, ...adapters] });
  }

  modelInfo(_: Body, response: ServerResponse): void {
    json(response, {
      model_path: this.modelPath,
      served_model_name: this.servedModelName,
      tokenizer_path: 'toy',
      is_generation: true,
      preferred_sampling_params: null,
      weight_version: this.weightVersion,
      load_format: 'auto',
      reasoning_parser: this.thinks ? 'qwen3' : null,
      tool_call_parser: this.parses ? 'hermes' : null,
      disaggregation_mode: 'null',
      has_image_understanding: false,
      has_audio_understanding: false,
      model_type: 'toy',
      architectures: ['ToyForCausalLM'],
    });
  }

  serverInfo(_: Body, response: ServerResponse): void {
    json(response, {
      model_path: 'toy',
      served_model_name: 'policy',
      incremental_streaming_output: this.incremental,
      enable_fp32_lm_head: this.fp32Head,
      sampling_mask_max_tokens: this.maskTokens,
      sampling_backend: 'flashinfer',
      speculative_algorithm: null,
      enable_return_routed_experts: this.experts !== null,
      enable_lora: this.adapters.isEnabled,
      max_req_input_len: this.context - 6,
      internal_states: [{}],
      version: '0.5.23',
      frontend: 'python',
    });
  }

  loads(_: Body, response: ServerResponse): void {
    const { running, waiting } = this.scheduler;
    const used = running.reduce((sum, { prompt, output }) => sum + prompt.length + output.length, 0);
    const load = {
      dp_rank: 0,
      num_running_reqs: running.length,
      num_waiting_reqs: waiting.length,
      num_used_tokens: used,
      num_total_tokens: used,
      max_total_num_tokens: this.context,
      max_running_requests: this.maxRunning,
      token_usage: used / this.context,
      gen_throughput: 0,
      cache_hit_rate: 0,
      utilization: 0,
    };
    json(response, {
      timestamp: new Date().toISOString(),
      version: '0.5.23',
      accelerator: null,
      num_accelerators: 1,
      loads: [load],
    });
  }

  metrics(_: Body, response: ServerResponse): void {
    if (!this.hasMetrics) return json(response, { detail: 'Not Found' }, 404);
    const { running, waiting } = this.scheduler;
    const labels = `{engine_type="unified",model_name="${this.servedModelName}",moe_ep_rank="0",pp_rank="0",tp_rank="0"}`;
    const gauges = {
      num_running_reqs: running.length,
      num_queue_reqs: waiting.length,
      token_usage: 0,
      cache_hit_rate: 0,
    };
    const lines = Object.entries(gauges).map(
      ([name, value]) => `# TYPE sglang:${name} gauge\nsglang:${name}${labels} ${value.toFixed(1)}\n`,
    );
    const counter = (name: string, label: string, samples: Record<string, number>) => {
      const shown = Object.entries(samples).map(([value, tokens]) =>
        tokens === 0
          ? ''
          : `sglang:${name}{${label}="${value}",engine_type="unified",model_name="policy"} ${tokens.toFixed(1)}\n`,
      );
      lines.push(`# TYPE sglang:${name} counter\n`, ...shown);
    };
    const { whole, streamed, cached } = this.#ended;
    counter('prompt_tokens_total', 'is_streaming', { false: whole, true: streamed });
    counter('cached_tokens_total', 'cache_source', { device: cached });
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(lines.join(''));
  }

  /** Answers after a sign of life of the scheduler, for which it samples a token. During a pause there is none. */
  async healthy(_: Body, response: ServerResponse, signal: AbortSignal): Promise<void> {
    if (this.isStarting) return empty(response, 503);
    const began = Date.now();
    const asked = new AbortController();
    const request = generateRequest({ input_ids: [END], sampling_params: { max_new_tokens: 1 } }, encode);
    this.#manager.run({ ...request, cue: HEALTH }, asked.signal).catch(() => {});
    while (Date.now() < began + this.health.until && !signal.aborted) {
      await setTimeout(this.health.every, null, { ref: false });
      if (this.scheduler.reportedAt < began) continue;
      asked.abort();
      return empty(response, 200);
    }
    asked.abort();
    empty(response, 503);
  }

  ready(_: Body, response: ServerResponse): void {
    empty(response, this.isStarting || this.#manager.isPaused ? 503 : 200);
  }

  ping(_: Body, response: ServerResponse): void {
    empty(response, 200);
  }

  abort({ rid = '', abort_all }: Body, response: ServerResponse): void {
    if (abort_all === true) this.#manager.abortAll();
    else if (typeof rid === 'string' && rid !== '') this.#manager.abort(rid);
    empty(response, 200);
  }

  async pause({ mode = 'abort' }: Body, response: ServerResponse): Promise<void> {
    if (mode !== 'abort' && mode !== 'retract' && mode !== 'in_place') throw new Refusal(`mode: ${String(mode)}`);
    await this.#manager.pause(mode);
    json(response, { message: 'Generation paused successfully.', status: 'ok' });
  }

  goOn(_: Body, response: ServerResponse): void {
    this.#manager.goOn();
    json(response, { message: 'Generation continued successfully.', status: 'ok' });
  }

  async updateWeights(body: Body, response: ServerResponse): Promise<void> {
    const { model_path, weight_version, abort_all_requests, flush_cache = true } = body;
    if (typeof model_path !== 'string') throw new Refusal('model_path: Field required');
    if (abort_all_requests === true) this.#manager.abortAll();
    const failed = await this.#manager.whileAlone(async () => {
      const error = await this.loadWeights(model_path);
      if (error !== null) return error;
      if (typeof weight_version === 'string') this.scheduler.setWeightVersion(weight_version);
      return flush_cache === false || this.scheduler.flush()
        ? null
        : 'Weights were updated, but the cache was not flushed';
    });
    if (failed === null) this.modelPath = this.servedModelName = model_path;
    if (failed === null && typeof weight_version === 'string') this.#setWeightVersion(weight_version);
    const said = failed ?? 'Succeeded to update model weights.';
    const versioned =
      failed === null && typeof weight_version === 'string' ? ` Weight version updated to ${weight_version}.` : '';
    json(
      response,
      { success: failed === null, message: said + versioned, num_paused_requests: 0 },
      failed === null ? 200 : 400,
    );
  }

  updateVersion({ new_version, abort_all_requests = true }: Body, response: ServerResponse): void {
    if (typeof new_version !== 'string') throw new Refusal('new_version: Field required');
    if (abort_all_requests === true) this.#manager.abortAll();
    this.#setWeightVersion(new_version);
    json(response, { success: true, message: `Weight version updated to ${new_version}`, new_version });
  }

  flushCache(_: Body, response: ServerResponse): void {
    const isFlushed = this.scheduler.flush();
    response
      .writeHead(isFlushed ? 200 : 400, { 'content-type': 'text/plain' })
      .end(isFlushed ? 'Cache flushed.\n' : 'Flush cache failed.\n');
  }

  loadAdapter(body: Body, response: ServerResponse): void {
    this.#answerUpdate(this.adapters.load(body), response);
  }

  unloadAdapter(body: Body, response: ServerResponse): void {
    this.#answerUpdate(this.adapters.unload(body), response);
  }

  #answerUpdate(error_message: string | null, response: ServerResponse): void {
    const success = error_message === null;
    const loaded_adapters = Object.fromEntries(this.adapters.loaded.map(({ name, path }) => [name, path]));
    json(response, { success, error_message, loaded_adapters }, success ? 200 : 400);
  }

  checkWeights({ action = 'checksum' }: Body, response: ServerResponse): void {
    if (action !== 'checksum') throw new Refusal(`action: ${String(action)}`);
    const checksum = createHash('sha256').update(this.modelPath).digest('hex');
    const rank = {
      role: 'target',
      tp_rank: 0,
      tp_size: 1,
      dp_rank: 0,
      dp_size: 1,
      pp_rank: 0,
      pp_size: 1,
      rank: 0,
      size: 1,
    };
    json(response, {
      success: true,
      message: 'Success.',
      ranks: [{ checksums: { weight: checksum }, per_gpu_checksum: checksum, parallelism_info: [rank] }],
      per_engine_checksum: createHash('sha256').update(checksum).digest('hex'),
    });
  }
}

/** The reply of the request by which a health check looks for a sign of life. */
const HEALTH: Cue = { lines: [{ text: 'x', ends: false }], log: 'health' };

type Handler =
  | 'generate'
  | 'chat'
  | 'tokenize'
  | 'detokenize'
  | 'parseFunctionCall'
  | 'separateReasoning'
  | 'models'
  | 'modelInfo'
  | 'serverInfo'
  | 'loads'
  | 'metrics'
  | 'healthy'
  | 'ready'
  | 'ping'
  | 'abort'
  | 'pause'
  | 'goOn'
  | 'updateWeights'
  | 'updateVersion'
  | 'flushCache'
  | 'checkWeights'
  | 'loadAdapter'
  | 'unloadAdapter';

const on = (call: Handler, ...methods: string[]) => ({ call, methods });
const ROUTES: Partial<Record<string, { call: Handler; methods: string[] }>> = {
  '/generate': on('generate', 'POST', 'PUT'),
  '/v1/chat/completions': on('chat', 'POST'),
  '/tokenize': on('tokenize', 'POST'),
  '/v1/tokenize': on('tokenize', 'POST'),
  '/detokenize': on('detokenize', 'POST'),
  '/v1/detokenize': on('detokenize', 'POST'),
  '/parse_function_call': on('parseFunctionCall', 'POST'),
  '/separate_reasoning': on('separateReasoning', 'POST'),
  '/v1/models': on('models', 'GET'),
  '/model_info': on('modelInfo', 'GET'),
  '/get_model_info': on('modelInfo', 'GET'),
  '/server_info': on('serverInfo', 'GET'),
  '/get_server_info': on('serverInfo', 'GET'),
  '/v1/loads': on('loads', 'GET'),
  '/metrics': on('metrics', 'GET'),
  '/health': on('healthy', 'GET'),
  '/health_generate': on('healthy', 'GET'),
  '/ready': on('ready', 'GET'),
  '/ping': on('ping', 'GET'),
  '/abort_request': on('abort', 'POST'),
  '/pause_generation': on('pause', 'POST'),
  '/continue_generation': on('goOn', 'POST'),
  '/update_weights_from_disk': on('updateWeights', 'POST'),
  '/update_weight_version': on('updateVersion', 'POST'),
  '/flush_cache': on('flushCache', 'GET', 'POST'),
  '/load_lora_adapter': on('loadAdapter', 'POST'),
  '/unload_lora_adapter': on('unloadAdapter', 'POST'),
  '/weights_checker': on('checkWeights', 'GET', 'POST'),
};

/** The body of an error of most routes. */
function errorBody(message: string, status = 400) {
  const type = status === 400 ? 'BadRequest' : String(status);
  return { object: 'error', message, type, param: null, code: status };
}

function empty(response: ServerResponse, status: number): void {
  response.writeHead(status).end();
}

function openStream(response: ServerResponse): (event: unknown) => void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  return (event) => void response.write(`data: ${JSON.stringify(event)}\n\n`);
}
