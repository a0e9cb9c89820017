import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import type { Adapters } from './adapters.ts';
import { outputOf, type Output, type Reported } from './output.ts';
import { Refusal, type GenerateRequest } from './requests.ts';
import type { Scheduler } from './scheduler.ts';
import { Sequence, type FinishReason, type Plan } from './sequence.ts';

export type Model = Reported & {
  plan: (request: GenerateRequest, i: number) => Plan;
  context: () => number;
  /** The most ids that a sampling mask may have (`--sampling-mask-max-tokens`). */
  maskTokens: () => number;
  adapters: Adapters;
  /** False when replies may be longer than requests allow. */
  hasLimits: () => boolean;
  /** True when a stream's events have only what is new. */
  isIncremental: () => boolean;
  /** Called in the order of a request's replies. Returns what is to be called at the end of this one. */
  begin: (sequence: Sequence, request: GenerateRequest) => () => void;
};

/** The time in ms between two looks of a server that waits until new weights can be loaded. */
const LOOK_MS = 5;

/** Takes requests before they reach the scheduler, and makes what is sent of what it reports. */
export class Manager {
  isPaused = false;
  /** The weight version that it reports. The scheduler's is another one after an update whose flush failed. */
  weightVersion = 'default';
  readonly #scheduler: Scheduler;
  readonly #model: Model;
  readonly #open = new Map<string, Sequence>();
  /** Requests that read the weights. Those that came during a pause wait outside. */
  #readers = 0;
  #isWriting = false;
  #changed = Promise.withResolvers<void>();

  constructor(scheduler: Scheduler, model: Model) {
    this.#scheduler = scheduler;
    this.#model = model;
  }

  /**
   * Runs a request to its end and returns its replies. `onOutput` gets each event of a stream. Aborting the signal ends the request, as a
   * client does that hangs up.
   */
  async run(request: GenerateRequest, signal: AbortSignal, onOutput?: (output: Output) => void): Promise<Output[]> {
    const rids = Array.from({ length: request.n }, () => (request.n === 1 && request.rid ? request.rid : randomUUID()));
    if (rids.some((rid) => this.#open.has(rid))) throw new Refusal(`Duplicate request ID detected: ${rids[0]}`);
    await this.#until(() => !this.isPaused, signal);
    await this.#until(() => !this.#isWriting, signal);
    this.#readers += 1;
    try {
      this.#check(request);
      return await Promise.all(rids.map((rid, i) => this.#sample(rid, i, request, signal, onOutput)));
    } finally {
      this.#readers -= 1;
      this.changed();
    }
  }

  #check({ ids, sampling: { maxNewTokens }, returnsMask, topK, expertsFrom, lora }: GenerateRequest): void {
    this.#model.adapters.check(lora);
    const context = this.#model.context();
    const maskTokens = this.#model.maskTokens();
    if (ids.length >= context)
      throw new Refusal(
        `The input (${ids.length} tokens) is longer than the model's context length (${context} tokens).`,
      );
    if (maxNewTokens !== null && maxNewTokens + ids.length > context) {
      throw new Refusal(
        `Requested token count exceeds the model's maximum context length of ${context} tokens. You requested a total of ${maxNewTokens + ids.length} ` +
          `tokens: ${ids.length} tokens from the input messages and ${maxNewTokens} tokens for the completion. Please reduce the number of tokens in ` +
          'the input messages or the completion to fit within the limit.',
      );
    }
    if (returnsMask && topK !== 1 && (topK <= 1 || topK > maskTokens)) {
      throw new Refusal(
        `return_sampling_mask requires top_k=1 for greedy sampling or finite 1 < top_k <= ${maskTokens}; got top_k=${topK}.`,
      );
    }
    if (expertsFrom !== null && expertsFrom > ids.length)
      throw new Refusal(`recv_req.routed_experts_start_len=${expertsFrom} is higher than the number of input tokens.`);
  }

  #sample(
    rid: string,
    i: number,
    request: GenerateRequest,
    signal: AbortSignal,
    onOutput?: (output: Output) => void,
  ): Promise<Output> {
    const { promise, resolve, reject } = Promise.withResolvers<Output>();
    const { stream, ids, sampling, cacheKey } = request;
    const plan = this.#model.plan(request, i);
    const sequence = new Sequence({ rid, prompt: ids, plan, sampling, stream, cacheKey });
    const longest = this.#model.context() - 1;
    const limit = this.#model.hasLimits() ? (sampling.maxNewTokens ?? Infinity) : Infinity;
    sequence.maxNewTokens = Math.max(0, Math.min(limit, longest - ids.length - 1));
    const onEnd = this.#model.begin(sequence, request);
    const abort = () => this.abort(rid);
    let told = stream && !request.isChat && this.#model.isIncremental() ? { tokens: 0, text: 0 } : null;
    sequence.report = () => {
      if (!stream && !sequence.finished) return;
      const output = outputOf(sequence, request, { ...this.#model, weightVersion: this.weightVersion, told });
      if (told) told = { tokens: sequence.output.length, text: told.text + output.text.length };
      const shown = request.n > 1 && request.stream ? { ...output, index: i } : output;
      if (!sequence.finished) return onOutput?.(shown);
      this.#open.delete(rid);
      signal.removeEventListener('abort', abort);
      onEnd();
      if (!request.stream) {
        const error = errorOf(sequence.finished);
        if (error) return reject(error);
      } else onOutput?.(shown);
      resolve(shown);
    };
    signal.addEventListener('abort', abort);
    this.#open.set(rid, sequence);
    if (ids.length >= longest - 5)
      sequence.toFinish = {
        type: 'abort',
        status_code: 400,
        err_type: 'BadRequestError',
        message: `Input length (${ids.length} tokens) exceeds the maximum allowed length (${longest - 5} tokens). Use a shorter input or enable --allow-auto-truncate.`,
      };
    this.#scheduler.add(sequence);
    return promise;
  }

  /** Does nothing for an id that no open request has. */
  abort(rid: string): void {
    if (this.#open.has(rid)) this.#scheduler.abort(rid);
  }

  abortAll(): void {
    this.#scheduler.abort('');
  }

  /** Waits, in mode `abort`, until every request has ended. */
  async pause(mode: 'abort' | 'retract' | 'in_place'): Promise<void> {
    this.isPaused = true;
    if (mode !== 'abort') return this.#scheduler.pause(mode);
    for (; this.#readers > 0; await setTimeout(LOOK_MS)) this.abortAll();
  }

  goOn(): void {
    this.isPaused = false;
    this.#scheduler.goOn();
    this.changed();
  }

  /** Calls `load` at once during a pause, else when no request is open; new ones wait meanwhile. */
  async whileAlone<T>(load: () => Promise<T>): Promise<T> {
    if (this.isPaused) return load();
    this.#isWriting = true;
    try {
      await this.#until(() => this.#readers === 0);
      return await load();
    } finally {
      this.#isWriting = false;
      this.changed();
    }
  }

  changed(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  async #until(holds: () => boolean, signal?: AbortSignal): Promise<void> {
    const gone = Promise.withResolvers<never>();
    gone.promise.catch(() => {});
    const leave = () => gone.reject(new Refusal('Request is disconnected from the client side (type 1).'));
    signal?.addEventListener('abort', leave);
    while (!holds()) await Promise.race([this.#changed.promise, gone.promise]);
    signal?.removeEventListener('abort', leave);
  }
}

/** Returns what a reply that is not streamed becomes when the engine ended it by an error. A plain abort is no error. */
function errorOf(finished: FinishReason): Refusal | null {
  const status = finished.type === 'abort' ? finished.status_code : null;
  return finished.type === 'abort' && status && status >= 400 ? new Refusal(finished.message, status) : null;
}
