import type { Outline } from '../../store/calls/outline.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { CallRecord } from '../../store/queries/record-calls.ts';
import { attemptEnded } from '../auth.ts';
import type { GatewayDeps } from '../deps.ts';
import { readText } from '../engines/connection.ts';
import type { Fault } from '../../store/schema.ts';
import { isAdapter, type Lease } from '../engines/pool.ts';
import { clientGone, engineSilent, Failure, toFailure } from '../failure.ts';
import { faultOf } from '../fault-of.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import { reportConstrained } from '../report-constrained.ts';
import { releaseReservation, type Reservation } from '../budgets.ts';
import type { Retry } from '../retry/retry.ts';
import { BytesUsedUp } from '../stored-bytes.ts';
import type { ConversationState } from '../token-in/conversations.ts';
import type { Conversation } from '../token-in/messages.ts';
import type { BindsTools } from './constraints.ts';
import { EMPTY_RESULT, type CallResult } from './call-result.ts';
import { IdleWatch } from './idle-watch.ts';
import { recordOf, type FinishedCall } from './record-of.ts';
import { EngineFailed } from './rejection.ts';
import type { ModelRequest } from './request.ts';
import { versionSpans } from './versions.ts';

/** `size` is the body's number of bytes, `client` the client's `User-Agent`. */
export type CallRequest = ModelRequest & {
  size: number;
  client: string | null;
  outline: Outline;
  conversation: Conversation | null;
  state: ConversationState;
  retry: Retry;
};

type RecordFields = Pick<FinishedCall, 'result' | 'status' | 'httpStatus'> & Partial<FinishedCall>;

/** One request to the model, with its abort signal, its idle timer and the single record in which it ends. */
export class Call {
  readonly id: string;
  readonly trial: TrialNow;
  readonly request: CallRequest;
  /** The request's fields with the run's sampling in force. */
  readonly sampled: Record<string, unknown>;
  readonly #reservation: Reservation | null;
  /** The settings of `sampled` as the engine receives them. They differ when the engine returns sampling masks. */
  inForce: Record<string, unknown>;
  /** Which tool calls the engine holds to their schema. While that is unknown, only those of strict tools are assumed to be held. */
  bindsTools: BindsTools = 'strict';
  lease: Lease | null = null;
  /** Returns what is known of the reply so far. It is recorded however the call ends. */
  result: () => CallResult = () => EMPTY_RESULT;
  firstTokenAt: Date | null = null;
  /** Why the trial's time ran out before the reply was whole. */
  budgetExhausted: Failure | null = null;
  /** Called once, when nothing more will happen. */
  onEnd: (as: CallRecord['status']) => void = () => {};
  readonly #deps: GatewayDeps;
  readonly #startedAt = new Date();
  readonly #controller = new AbortController();
  #unfollow: () => void = () => {};
  readonly #idle: IdleWatch;
  #isStreaming = false;
  #settled = false;
  #isWhole = false;
  #committing: Promise<unknown> | null = null;

  constructor(
    deps: GatewayDeps,
    trial: TrialNow,
    request: CallRequest,
    sampled: Record<string, unknown>,
    reservation: Reservation | null = null,
  ) {
    this.#deps = deps;
    this.#idle = new IdleWatch(deps.settings.idleMs, () => void this.#onIdle());
    this.trial = trial;
    this.request = request;
    this.sampled = this.inForce = sampled;
    this.id = reservation?.callId ?? crypto.randomUUID();
    this.#reservation = reservation;
    deps.counters.accepted += 1;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(why: Failure): void {
    this.#controller.abort(why);
  }

  /** Aborts the engine's request because time is up. What came until then is a reply that ends by its length. */
  runOut(why: Failure): void {
    if (this.#isWhole || this.signal.aborted) return;
    this.budgetExhausted = why;
    this.abort(why);
  }

  /** Ends the call when the agent goes away. */
  follow(agent: AbortSignal): void {
    const gone = () => this.abort(clientGone());
    if (agent.aborted) gone();
    agent.addEventListener('abort', gone);
    this.#unfollow = () => agent.removeEventListener('abort', gone);
  }

  /** Awaits the engine, for hours if it is alive and this is not the rest of a stream. */
  withIdleLimit<T>(answer: Promise<T>): Promise<T> {
    return this.#idle.while(answer);
  }

  /** Returns the next part of a stream. After its first bytes it must not be silent for long. */
  async next(bytes: AsyncIterator<Uint8Array>): Promise<Uint8Array | null> {
    const { done, value } = await this.#idle.while(bytes.next());
    this.#isStreaming = true;
    return done ? null : value;
  }

  readText(body: AsyncIterable<Uint8Array>): Promise<string> {
    return this.withIdleLimit(readText(body));
  }

  async #onIdle(): Promise<void> {
    const { idleMs } = this.#deps.settings;
    if (!this.#isStreaming && (await this.lease?.replica.isAlive(idleMs))) return;
    this.abort(engineSilent(idleMs));
  }

  /** Returns the failure behind an error: an abort's own reason, or `engine_cut` for any error of the engine's connection. */
  failureOf(error: unknown): Failure {
    const { reason } = this.signal;
    if (reason instanceof Failure && !(reason === this.budgetExhausted && error instanceof Failure)) return reason;
    if (error instanceof Failure) return error;
    const failure = toFailure(error);
    return failure.code === 'internal_error' || failure.code === 'store_unavailable'
      ? new Failure(
          502,
          'engine_cut',
          `the engine's reply broke off: ${error instanceof Error ? error.message : String(error)}`,
        )
      : failure;
  }

  /** Throws when the prompt is too long. Only the engine knows its length, so the reply is dropped. */
  checkPrompt(prompt: readonly number[] | null): void {
    const limit = this.trial.budgets.prompt_tokens;
    if (limit === undefined || prompt === null || prompt.length <= limit) return;
    const message = `the prompt has ${prompt.length} tokens, and this trial allows ${limit}`;
    throw new Failure(400, 'context_length_exceeded', message, { retryable: false });
  }

  /** Commits a whole reply. Throws when the agent must not see its end; the call is then recorded as failed if possible. */
  async complete(): Promise<void> {
    this.#isWhole = true;
    const result = this.result();
    const weights = await this.#verifyWeights();
    if (weights === 'foreign' || this.#isForeign(result)) {
      throw new Failure(
        502,
        'weight_version_mismatch',
        'the engine no longer has the weights of this run, so its reply was discarded: try again',
      );
    }
    const mode = (await this.lease?.replica.logprobsMode(this.lease.model)) ?? null;
    if (this.signal.aborted && !this.budgetExhausted) throw this.failureOf(this.signal.reason);
    const why = this.budgetExhausted ?? this.#cutByBudget(result);
    const reason = why && reasonOf(why);
    const committing = this.#record({
      result,
      status: 'completed',
      httpStatus: 200,
      reason,
      published: weights === 'published',
      mode,
    });
    this.#committing = committing;
    const refused = await committing;
    this.#end(refused ? 'failed' : 'completed');
    if (refused) throw refused;
  }

  /** Records a call that failed. If that is impossible it is logged; no agent saw its end. */
  async fail(failure: Failure): Promise<void> {
    // If the agent leaves during a commit, the commit decides how the call ends.
    if (
      this.#committing &&
      (await this.#committing.then(
        () => true,
        () => false,
      ))
    )
      return;
    if (this.#settled) return;
    const status = failure.code === 'agent_disconnected' ? 'cancelled' : 'failed';
    this.#end(status);
    if (status === 'failed')
      this.#deps.log(`call ${this.id} of trial ${this.trial.id}: ${failure.code}: ${failure.message}`);
    const result = this.result();
    const fillsBytes = failure instanceof BytesUsedUp;
    const recording = this.#faultOf(failure).then((fault) =>
      this.#recordLast({ result, status, httpStatus: failure.status, reason: reasonOf(failure), fault, fillsBytes }),
    );
    const recorded = recording.then(
      (refused) => refused && this.#deps.log(`call ${this.id} ended ${status} and is not recorded: ${refused.message}`),
      (error: unknown) =>
        this.#deps.log(`call ${this.id} of trial ${this.trial.id} ended ${status}, unrecorded: ${String(error)}`),
    );
    // When the database is away the agent has waited long enough and gets its error at once.
    if (failure.code !== 'store_unavailable') await recorded;
  }

  /** Ends a call whose agent gets `reply` instead of an engine's. It gets it once the call is recorded as failed for `why`. */
  async refuse(why: Failure, reply: Record<string, unknown>): Promise<void> {
    const recording = this.#recordLast({
      result: { ...this.result(), reply },
      status: 'failed',
      httpStatus: 200,
      reason: reasonOf(why),
      fault: faultOf(why),
      fillsBytes: why instanceof BytesUsedUp,
    });
    const refused = await recording.finally(() => this.#end('failed'));
    if (refused) throw refused;
  }

  /** Ends a call without recording it: an earlier record already states the refusal. */
  drop(): void {
    this.#end('failed');
  }

  /**
   * Returns why the record was refused: the attempt has ended, another call took the reservation while this process had no contact with the
   * store, or the trial has stored as many bytes as it may.
   */
  async #whyRefused(): Promise<Failure> {
    const { id, attempt } = this.trial;
    const now = await withStoreRetry(this.#deps, () => this.#deps.trials.find(id));
    if (now?.attempt !== attempt || now.status !== 'created') return attemptEnded(id, attempt);
    if (this.#reservation && !(this.id in (now.reserved ?? {})))
      return new Failure(
        503,
        'reservation_lost',
        "another call has taken this call's reservation of the trial's budgets: try again",
      );
    return new BytesUsedUp(now);
  }

  /**
   * Returns who caused the failure. An error in the middle of a reply cannot be tested by asking again, so a healthy engine means that the
   * request is at fault.
   */
  async #faultOf(failure: Failure): Promise<Fault> {
    if (failure.code === 'engine_timeout' && this.#wereOthersAnswered()) return 'request';
    const isUndecided = failure instanceof EngineFailed && failure.isAnswer && failure.fault === null;
    if (!isUndecided || !this.lease) return faultOf(failure);
    return (await this.lease.replica.isAlive()) ? 'request' : 'engine';
  }

  /**
   * True when the silent engine completed another call meanwhile. Then only this request is silent, for example by its grammar. The first
   * half of the silence does not count, because an engine that stops may have completed a call shortly after this call's last token.
   */
  #wereOthersAnswered(): boolean {
    return this.lease !== null && Date.now() - this.lease.replica.answeredAt < this.#deps.settings.idleMs / 2;
  }

  #end(as: CallRecord['status']): void {
    if (this.#settled) return;
    this.#settled = true;
    if (as === 'completed') this.lease?.replica.noteAnswer();
    this.#deps.counters[as] += 1;
    this.#unfollow();
    this.#idle.stop();
    // Stop what is still under way to the engine. A whole reply was read to its end.
    if (as !== 'completed') this.#controller.abort(OVER);
    this.lease?.release();
    this.onEnd(as);
  }

  /** True when weights of anything but the trial's run sampled a part of it. */
  #isForeign({ choices }: CallResult): boolean {
    const { runId } = this.trial;
    if (runId === null || (this.lease && isAdapter(this.lease))) return false;
    return choices.some(
      ({ versions, completion }) => versions && versionSpans(versions, runId, completion?.length ?? 0) === 'foreign',
    );
  }

  #cutByBudget({ choices }: CallResult): Failure | null {
    const { tokens, cut } = this.#reservation ?? { tokens: null, cut: null };
    const share = Math.floor((tokens ?? Infinity) / this.request.n);
    return choices.some(
      ({ finishReason, completion }) => finishReason === 'length' && (completion?.length ?? 0) >= share,
    )
      ? cut
      : null;
  }

  /** Returns whether the engine still has the weights of the call. A trial without a run accepts any weights. */
  async #verifyWeights(): Promise<'same' | 'published' | 'foreign'> {
    if (!this.lease || this.trial.runId === null) return 'same';
    return this.#deps.engines.verifyLease(this.lease);
  }

  /** Records the end of a call. If that fails, releases its reservation, which the record would have settled. */
  async #recordLast(end: RecordFields): Promise<Failure | null> {
    try {
      return await this.#record(end);
    } catch (error) {
      if (this.#reservation) void releaseReservation(this.#deps, this.#reservation);
      throw error;
    }
  }

  async #remembered(record: CallRecord): Promise<'recorded' | 'refused'> {
    const verdict = await this.#deps.recorder.record(record);
    if (verdict === 'recorded') this.#deps.conversations.add(this.request.conversation, record);
    return verdict;
  }

  /** Returns null once the call is recorded, else the reason for which the record was refused. */
  #record(end: RecordFields): Promise<Failure | null> {
    const recording = this.#recordOrSayWhy(end);
    this.#deps.recorder.keep(recording);
    return recording;
  }

  #countCompleted(record: CallRecord): void {
    reportConstrained(this.#deps, record);
    if (record.continuation) this.#deps.counters.continuations[record.continuation] += 1;
  }

  async #recordOrSayWhy(end: RecordFields): Promise<Failure | null> {
    const { id, trial, request, inForce: sampled, bindsTools, lease, firstTokenAt } = this;
    const reserved = this.#reservation !== null;
    const record = recordOf({
      id,
      trial,
      request,
      sampled,
      bindsTools,
      reserved,
      lease,
      firstTokenAt,
      startedAt: this.#startedAt,
      reason: null,
      fault: null,
      published: false,
      mode: null,
      fillsBytes: false,
      ...end,
    });
    try {
      const recording = this.#remembered(record);
      this.#deps.conversations.expect(record, recording);
      const verdict = await recording;
      if (verdict === 'recorded') {
        if (record.status === 'completed') this.#countCompleted(record);
        return null;
      }
      const why = await this.#whyRefused();
      // Without this record an agent could sample uncounted tokens again and again.
      if (why instanceof BytesUsedUp && !end.fillsBytes)
        await this.#record({
          result: EMPTY_RESULT,
          status: 'failed',
          httpStatus: why.status,
          reason: reasonOf(why),
          fault: faultOf(why),
          fillsBytes: true,
        });
      return why;
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw new Failure(500, 'not_recorded', "the call could not be recorded: the gateway's log has the reason", {
        cause: error,
      });
    }
  }
}

/** A shared value, because an error with a stack for each call would cost more than the rest of its end. */
const OVER = new Error('the call is over');

const reasonOf = ({ code, message }: Failure): string => `${code}: ${message}`.slice(0, 2000);
