import type { LogFields } from '../../core/log.ts';
import type { TrialNow } from '../../store/queries/find-trials.ts';
import type { CallStatus } from '../../store/schema.ts';
import { clientGone, Failure, toFailure } from '../failure.ts';
import { EMPTY_RESULT } from '../engines/call-result.ts';
import type { JsonObject } from '../json.ts';
import type { Counters } from './counters.ts';
import type { Progress } from './generate.ts';
import type { CallRequest } from './identify.ts';
import type { Reservation } from './reserve.ts';

type Fields = {
  trial: TrialNow;
  request: CallRequest;
  /** The request's fields with the run's sampling in force. */
  sampled: JsonObject;
  reservation: Reservation | null;
};

/** The life of one request to the model: it begins, may be aborted, and ends once. What it came to is in `record.ts`. */
export class Call {
  readonly id: string;
  readonly trial: TrialNow;
  readonly request: CallRequest;
  readonly sampled: JsonObject;
  readonly reservation: Reservation | null;
  readonly startedAt = new Date();
  readonly #counters: Counters;
  readonly #controller = new AbortController();
  readonly #onEnd: ((as: CallStatus) => void)[] = [];
  readonly #cutReplies = new Set<number>();
  #progress: () => Progress = () => NO_PROGRESS;
  #budgetExhausted: Failure | null = null;
  #isWhole = false;
  #isOver = false;

  constructor(counters: Counters, { trial, request, sampled, reservation }: Fields) {
    this.#counters = counters;
    this.trial = trial;
    this.request = request;
    this.sampled = sampled;
    this.reservation = reservation;
    this.id = reservation?.callId ?? crypto.randomUUID();
    counters.accepted += 1;
  }

  /** What a line of the log says of the call. */
  get logged(): LogFields {
    const { id: trial_id, runId: run_id } = this.trial;
    const trace_id = this.request.traceparent?.split('-')[1];
    return {
      trial_id,
      call_id: this.id,
      ...(run_id === null ? {} : { run_id }),
      ...(trace_id === undefined ? {} : { trace_id }),
    };
  }

  /** Returns how far the call is. */
  get progress(): Progress {
    return this.#progress();
  }

  /** Sets who knows how far the call is. */
  follows(progress: () => Progress): void {
    this.#progress = progress;
  }

  /** Notes that the agent is not shown all tool calls of a reply. */
  noteCut(index: number): void {
    this.#cutReplies.add(index);
  }

  isCut(index: number): boolean {
    return this.#cutReplies.has(index);
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
    this.#budgetExhausted = why;
    this.abort(why);
  }

  /** Why the trial's time ran out before the reply was whole. */
  get budgetExhausted(): Failure | null {
    return this.#budgetExhausted;
  }

  /** The engine has nothing more to say, so no budget cuts the reply any more. */
  becomeWhole(): void {
    this.#isWhole = true;
  }

  /** Aborts the call when the agent goes away. */
  follow(agent: AbortSignal): void {
    const gone = () => this.abort(clientGone());
    if (agent.aborted) gone();
    agent.addEventListener('abort', gone);
    this.onEnd(() => agent.removeEventListener('abort', gone));
  }

  /** Returns the failure behind an error: an abort's own reason, or `engine_cut` for any error of the engine's connection. */
  failureOf(error: unknown): Failure {
    const { reason } = this.signal;
    if (reason instanceof Failure && !(reason === this.#budgetExhausted && error instanceof Failure)) return reason;
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

  /** `over` is called once, when nothing more will happen. */
  onEnd(over: (as: CallStatus) => void): void {
    this.#onEnd.push(over);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  end(as: CallStatus): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#counters[as] += 1;
    // Stop what is still under way to the engine. A whole reply was read to its end.
    if (as !== 'completed') this.#controller.abort(OVER);
    for (const over of this.#onEnd) over(as);
  }
}

/** That of a call that no engine has. */
export const NO_PROGRESS: Progress = {
  placed: null,
  result: EMPTY_RESULT,
  parent: null,
  showsMedia: false,
  firstTokenAt: null,
};

/** A shared value, because an error with a stack for each call would cost more than the rest of its end. */
const OVER = new Error('the call is over');
