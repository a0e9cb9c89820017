import type { CallStatus, Continuation } from '../../store/schema.ts';
import type { Trial } from '../../store/queries/transaction.ts';
import type { GatewayDeps } from '../deps.ts';
import type { Lease } from '../engines/pool.ts';
import { closed } from '../auth.ts';
import { clientGone, Failure, toFailure } from '../failure.ts';
import { startsWith } from '../../store/samples/build-samples.ts';
import type { Retry } from '../retry/retry.ts';
import type { Past } from '../token-in/conversations.ts';
import type { Conversation } from '../token-in/messages.ts';
import { onlyChoice } from './hide.ts';
import type { ChatRequest } from './request.ts';
import { isReproducible, samplingOf } from './sampling.ts';
import { defectOf, type LabelSpan, type Tokens, type Untrainable } from './tokens.ts';
import { versionOf, versionSpans } from './versions.ts';

/** What was learned of a call by the time it ended. */
export type Ending = {
  tokens?: Tokens;
  /** Null when the engine did not say which weights sampled which tokens. */
  versions?: LabelSpan[] | null;
  /** The engine's own count of the tokens it sampled. */
  counted?: number | null;
  finishReason?: string | null;
  /** The reply as the agent gets it. */
  reply?: Record<string, unknown> | null;
};

export type PlacedRequest = ChatRequest & { conversation: Conversation | null; past: Past; retry: Retry };

/** One request to the model: its abort signal, its idle timer, and the one record that it ends in. */
export class Call {
  readonly id = crypto.randomUUID();
  readonly trial: Trial;
  readonly request: PlacedRequest;
  /** The request's fields with the run's sampling in force. */
  readonly sampled: Record<string, unknown>;
  lease: Lease | null = null;
  /** What is known of the reply so far: it goes into the record, however the call ends. */
  ending: () => Ending = () => ({});
  firstTokenAt: Date | null = null;
  /** Called once, when nothing more will happen. */
  onEnd: () => void = () => {};
  readonly #deps: GatewayDeps;
  readonly #startedAt = new Date();
  readonly #controller = new AbortController();
  readonly #ended = new AbortController();
  #settled = false;
  #committing: Promise<unknown> | null = null;

  constructor(deps: GatewayDeps, trial: Trial, request: PlacedRequest, sampled: Record<string, unknown>) {
    this.#deps = deps;
    this.trial = trial;
    this.request = request;
    this.sampled = sampled;
    deps.counters.accepted += 1;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(why: Failure): void {
    this.#controller.abort(why);
  }

  /** Ends the call when the agent goes away or the process stops. */
  follow(agent: AbortSignal): void {
    const { stopping } = this.#deps;
    const gone = () => this.abort(clientGone());
    const stop = () => this.abort(new Failure(503, 'shutting_down', 'the gateway is stopping: try again'));
    if (agent.aborted) gone();
    else agent.addEventListener('abort', gone, { signal: this.#ended.signal });
    if (stopping.aborted) stop();
    else stopping.addEventListener('abort', stop, { signal: this.#ended.signal });
  }

  /** Waits for the engine, but not for ever. */
  async patient<T>(answer: Promise<T>): Promise<T> {
    const { idleMs } = this.#deps.settings;
    const silent = () => this.abort(new Failure(504, 'engine_timeout', `the engine was silent for ${idleMs / 1000} s`));
    const idle = setTimeout(silent, idleMs);
    try {
      return await answer;
    } finally {
      clearTimeout(idle);
    }
  }

  /** The engine's bytes, each awaited patiently. */
  async *read(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const bytes = body[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await this.patient(bytes.next());
        if (next.done) return;
        yield next.value;
      }
    } finally {
      await bytes.return?.();
    }
  }

  /** The failure behind an error: an abort's own reason, and for everything that the engine's connection throws a cut. */
  failureOf(error: unknown): Failure {
    if (this.signal.reason instanceof Failure) return this.signal.reason;
    if (error instanceof Failure) return error;
    const failure = toFailure(error);
    return failure.code === 'internal_error' || failure.code === 'store_unavailable'
      ? new Failure(502, 'engine_cut', `the engine's reply broke off: ${error instanceof Error ? error.message : String(error)}`)
      : failure;
  }

  /** The engine alone knows how long a prompt is: a reply to one that is too long is not handed out. */
  checkPrompt(prompt: readonly number[] | null): void {
    const limit = this.trial.budgets.prompt_tokens;
    if (limit === undefined || prompt === null || prompt.length <= limit) return;
    const message = `the prompt has ${prompt.length} tokens, and this trial allows ${limit}`;
    throw new Failure(400, 'context_length_exceeded', message, { retryable: false });
  }

  /** Commits a reply that is whole. Throws, with the call recorded as failed where it can be, when the agent must not see its end. */
  async complete(): Promise<void> {
    const ending = this.ending();
    const standing = await this.#standing();
    const versions = this.#versions(ending);
    if (standing === 'foreign' || versions === 'foreign') {
      throw new Failure(502, 'policy_label_mismatch', 'the engine no longer has the weights of this run: the reply is void');
    }
    if (this.signal.aborted) throw this.failureOf(this.signal.reason);
    const untrainable = this.#defect(ending) ?? (standing === 'published' && !versions ? 'policy_changed' : null);
    const committing = this.#record('completed', { ...ending, httpStatus: 200, untrainable });
    this.#committing = committing;
    const verdict = await committing;
    this.#end(verdict === 'refused' ? 'failed' : 'completed');
    if (verdict === 'refused') throw closed(`attempt ${this.trial.attempt} of trial ${this.trial.id} has ended`);
    this.#remember(ending);
  }

  /** Records a call that came to nothing. What could not be recorded is logged: no agent saw it end. */
  async fail(failure: Failure): Promise<void> {
    // Whether an agent that left meanwhile saw its end or not: a call that is being committed ends as that says.
    if (this.#committing && (await this.#committing.then(() => true, () => false))) return;
    if (this.#settled) return;
    const ending = this.ending();
    const status = failure.code === 'agent_disconnected' ? 'cancelled' : 'failed';
    this.#end(status);
    if (status === 'failed') this.#deps.log(`call ${this.id} of trial ${this.trial.id}: ${failure.code}: ${failure.message}`);
    const reason = `${failure.code}: ${failure.message}`.slice(0, 2000);
    const untrainable = ending.tokens?.completion ? this.#defect(ending) : null;
    const recorded = this.#record(status, { ...ending, httpStatus: failure.status, untrainable, reason }).then(
      (verdict) => verdict === 'refused' && this.#deps.log(`call ${this.id} ended ${status} after its attempt had`),
      (error: unknown) => this.#deps.log(`call ${this.id} of trial ${this.trial.id} ended ${status}, unrecorded: ${String(error)}`),
    );
    // The agent has waited for the database long enough to hear this.
    if (failure.code !== 'store_unavailable') await recorded;
  }

  /** Ends a call that no engine is asked: `reply` reaches the agent once this is recorded, as failed for `why`. */
  async refuse(why: Failure, reply: Record<string, unknown>): Promise<void> {
    const recording = this.#record('failed', { reply, httpStatus: 200, untrainable: null, reason: `${why.code}: ${why.message}` });
    const verdict = await recording.finally(() => this.#end('failed'));
    if (verdict === 'refused') throw closed(`attempt ${this.trial.attempt} of trial ${this.trial.id} has ended`);
  }

  #end(as: CallStatus): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#deps.counters[as] += 1;
    this.#ended.abort();
    this.onEnd();
  }

  #remember({ tokens, reply }: Ending): void {
    const at = { trialId: this.trial.id, attempt: this.trial.attempt };
    const tokenIds = Int32Array.from([...(tokens?.prompt ?? []), ...(tokens?.completion ?? [])]);
    const conversation = tokens?.prompt && tokens.completion ? this.request.conversation : null;
    this.#deps.conversations.add(at, conversation, reply && onlyChoice(reply)?.message, { callId: this.id, tokenIds });
  }

  #continuation(prompt: readonly number[] | null): Continuation | null {
    const { parent, isEdited, isFirst } = this.request.past;
    if (isFirst) return null;
    if (!parent || isEdited) return 'forked';
    return prompt && startsWith(prompt, parent.tokenIds) ? 'clean' : 'realigned';
  }

  #versions({ versions, tokens }: Ending) {
    if (this.trial.runId === null || !versions) return null;
    return versionSpans(versions, this.trial.runId, tokens?.completion?.length ?? 0);
  }

  /** A trial without a run takes whatever the engine serves. */
  async #standing(): Promise<'same' | 'published' | 'foreign'> {
    if (!this.lease || this.trial.runId === null) return 'same';
    return this.#deps.engines.settle(this.lease);
  }

  #defect({ tokens, counted = null }: Ending): Untrainable | null {
    const defect = tokens ? defectOf(tokens, counted) : 'no_token_ids';
    return defect ?? (isReproducible(this.sampled) ? null : 'sampling_not_reproducible');
  }

  async #record(
    status: CallStatus,
    { tokens, versions: said, finishReason, reply, ...end }: Ending & { httpStatus: number; untrainable: Untrainable | null; reason?: string },
  ): Promise<'recorded' | 'refused'> {
    const label = this.lease?.label ?? null;
    const spans = this.#versions({ tokens, versions: said });
    const versions = spans === 'foreign' ? null : spans;
    const record = {
      id: this.id,
      trialId: this.trial.id,
      attempt: this.trial.attempt,
      status,
      reason: end.reason ?? null,
      httpStatus: end.httpStatus,
      stream: this.request.stream,
      digest: this.request.retry.digest,
      idempotencyKey: this.request.retry.key,
      request: this.request.bytes,
      response: reply ? new TextEncoder().encode(JSON.stringify(reply)) : null,
      promptTokenIds: tokens?.prompt ? Int32Array.from(tokens.prompt) : null,
      completionTokenIds: tokens?.completion ? Int32Array.from(tokens.completion) : null,
      logprobs: tokens?.logprobs ? Float32Array.from(tokens.logprobs) : null,
      finishReason: finishReason ?? null,
      sampling: samplingOf(this.sampled),
      engine: this.lease?.replica.connection.url ?? null,
      policyLabel: label,
      policyVersion: this.trial.runId === null ? null : versions ? Math.min(...versions.map((span) => span.version)) : versionOf(label),
      versionSpans: versions && versions.length > 1 ? versions : null,
      parentId: this.request.past.parent?.callId ?? null,
      continuation: this.#continuation(tokens?.prompt ?? null),
      untrainable: end.untrainable,
      startedAt: this.#startedAt,
      firstTokenAt: this.firstTokenAt,
      endedAt: new Date(),
    };
    try {
      return await this.#deps.recorder.record(record);
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw new Failure(500, 'not_recorded', 'the call could not be recorded: the gateway\'s log says why', { cause: error });
    }
  }
}
