import type { CallRecord } from '../../store/queries/record-calls.ts';
import type { Fault } from '../../store/schema.ts';
import { EMPTY_RESULT, type CallResult } from '../engines/call-result.ts';
import { EngineFailed } from '../engines/engine-failed.ts';
import { isAdapter, type Lease } from '../engines/lease.ts';
import { attemptEnded, Failure } from '../failure.ts';
import { faultOf } from '../fault-of.ts';
import { withStoreRetry } from '../with-store-retry.ts';
import type { Call } from './call.ts';
import type { CallDeps } from './deps.ts';
import type { Progress } from './generate.ts';
import { recordOf, type Ending } from './recording/record-of.ts';
import { reportConstrained } from './recording/report-constrained.ts';
import { releaseReservation } from './reserve.ts';
import { BytesUsedUp } from './budgets/stored-bytes.ts';
import { versionSpans } from './recording/versions.ts';

type End = Pick<Ending, 'status' | 'httpStatus'> & Partial<Ending>;

/** Writes the one record in which a call ends. */
export class Recording {
  readonly #deps: CallDeps;
  readonly #call: Call;
  #committing: Promise<unknown> | null = null;

  constructor(deps: CallDeps, call: Call) {
    this.#deps = deps;
    this.#call = call;
  }

  /** Commits a whole reply. Throws when the agent must not see its end; the call is then recorded as failed if possible. */
  async complete(progress: Progress): Promise<void> {
    const call = this.#call;
    call.becomeWhole();
    const { placed, result } = progress;
    const lease = placed?.lease ?? null;
    const weights = await this.#verifyWeights(lease);
    if (weights === 'foreign' || this.#isForeign(result, lease)) {
      throw new Failure(
        502,
        'weight_version_mismatch',
        'the engine no longer has the weights of this run, so its reply was discarded: try again',
      );
    }
    const mode = (await lease?.replica.logprobsMode(lease.model)) ?? null;
    if (call.signal.aborted && !call.budgetExhausted) throw call.failureOf(call.signal.reason);
    const why = call.budgetExhausted ?? this.#cutByBudget(result);
    const committing = this.#record(progress, {
      status: 'completed',
      httpStatus: 200,
      reason: why && reasonOf(why),
      published: weights === 'published',
      mode,
    });
    this.#committing = committing;
    const refused = await committing;
    call.end(refused ? 'failed' : 'completed');
    if (refused) throw refused;
  }

  /** Records a call that failed. If that is impossible it is logged; no agent saw its end. */
  async fail(failure: Failure, progress: Progress): Promise<void> {
    const call = this.#call;
    // If the agent leaves during a commit, the commit decides how the call ends.
    if (
      this.#committing &&
      (await this.#committing.then(
        () => true,
        () => false,
      ))
    )
      return;
    if (call.isOver) return;
    const status = failure.code === 'agent_disconnected' ? 'cancelled' : 'failed';
    call.end(status);
    const { log } = this.#deps;
    const about = { ...call.logged, error: failure.code };
    if (status === 'failed')
      log(`call ${call.id} of trial ${call.trial.id}: ${failure.code}: ${failure.message}`, {
        ...about,
        level: 'warning',
      });
    const recording = this.#faultOf(failure, progress.placed?.lease ?? null).then((fault) =>
      this.#recordLast(progress, { status, httpStatus: failure.status, ...endedFor(failure), fault }),
    );
    const recorded = recording.then(
      (refused) =>
        refused &&
        log(`call ${call.id} ended ${status} and is not recorded: ${refused.message}`, { ...about, level: 'warning' }),
      (error: unknown) =>
        log(`call ${call.id} of trial ${call.trial.id} ended ${status}, unrecorded: ${String(error)}`, {
          ...about,
          level: 'error',
        }),
    );
    // When the database is away the agent has waited long enough and gets its error at once.
    if (failure.code !== 'store_unavailable') await recorded;
  }

  /** Ends a call whose agent gets `reply` instead of an engine's. It gets it once the call is recorded as failed for `why`. */
  async refuse(why: Failure, reply: Record<string, unknown>, progress: Progress): Promise<void> {
    const recording = this.#recordLast(
      { ...progress, result: { ...progress.result, reply } },
      { status: 'failed', httpStatus: 200, ...endedFor(why) },
    );
    const refused = await recording.finally(() => this.#call.end('failed'));
    if (refused) throw refused;
  }

  /** Ends a call without recording it: an earlier record already states the refusal. */
  drop(): void {
    this.#call.end('failed');
  }

  /**
   * Returns why the record was refused: the attempt has ended, another call took the reservation while this process had no contact with the
   * store, or the trial has stored as many bytes as it may.
   */
  async #whyRefused(): Promise<Failure> {
    const { id: callId, trial, reservation } = this.#call;
    const { id, attempt } = trial;
    const now = await withStoreRetry(this.#deps, () => this.#deps.trials.find(id));
    if (now?.attempt !== attempt || now.status !== 'created') return attemptEnded(id, attempt);
    if (reservation && !(callId in (now.reserved ?? {})))
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
  async #faultOf(failure: Failure, lease: Lease | null): Promise<Fault> {
    if (failure.code === 'engine_timeout' && this.#wereOthersAnswered(lease)) return 'request';
    const isUndecided = failure instanceof EngineFailed && failure.isAnswer && failure.fault === null;
    if (!isUndecided || !lease) return faultOf(failure);
    return (await lease.replica.isAlive()) ? 'request' : 'engine';
  }

  /**
   * True when the silent engine completed another call meanwhile. Then only this request is silent, for example by its grammar. The first
   * half of the silence does not count, because an engine that stops may have completed a call shortly after this call's last token.
   */
  #wereOthersAnswered(lease: Lease | null): boolean {
    return lease !== null && Date.now() - lease.replica.answeredAt < this.#deps.settings.idleMs / 2;
  }

  /** True when weights of anything but the trial's run sampled a part of it. */
  #isForeign({ choices }: CallResult, lease: Lease | null): boolean {
    const { runId } = this.#call.trial;
    if (runId === null || (lease && isAdapter(lease))) return false;
    return choices.some(
      ({ versions, completion }) => versions && versionSpans(versions, runId, completion?.length ?? 0) === 'foreign',
    );
  }

  #cutByBudget({ choices }: CallResult): Failure | null {
    const { request, reservation } = this.#call;
    const { tokens, cut } = reservation ?? { tokens: null, cut: null };
    const share = Math.floor((tokens ?? Infinity) / request.n);
    return choices.some(
      ({ finishReason, completion }) => finishReason === 'length' && (completion?.length ?? 0) >= share,
    )
      ? cut
      : null;
  }

  /** Returns whether the engine still has the weights of the call. A trial without a run accepts any weights. */
  async #verifyWeights(lease: Lease | null): Promise<'same' | 'published' | 'foreign'> {
    if (!lease || this.#call.trial.runId === null) return 'same';
    return this.#deps.engines.verifyLease(lease);
  }

  /** Records the end of a call. If that fails, releases its reservation, which the record would have settled. */
  async #recordLast(progress: Progress, end: End): Promise<Failure | null> {
    try {
      return await this.#record(progress, end);
    } catch (error) {
      const { reservation } = this.#call;
      if (reservation) void releaseReservation(this.#deps, reservation);
      throw error;
    }
  }

  async #remembered(record: CallRecord): Promise<'recorded' | 'refused'> {
    const verdict = await this.#deps.recorder.record(record, this.#call.trial.runId);
    if (verdict === 'recorded') this.#deps.conversations.add(this.#call.request.conversation, record);
    return verdict;
  }

  /** Returns null once the call is recorded, else the reason for which the record was refused. */
  #record(progress: Progress, end: End): Promise<Failure | null> {
    const recording = this.#recordOrSayWhy(progress, end);
    this.#deps.recorder.keep(recording);
    return recording;
  }

  #countCompleted(record: CallRecord): void {
    reportConstrained(this.#deps, this.#call.trial, record);
    const { engine, stream, startedAt, firstTokenAt, endedAt, choices } = record;
    const tokens = choices.reduce((sum, { completionTokenIds }) => sum + (completionTokenIds?.length ?? 0), 0);
    const afterFirst = stream && firstTokenAt ? endedAt.getTime() - firstTokenAt.getTime() : 0;
    // A stream may come whole too: its first token then comes with its last.
    const ms = afterFirst > tokens / 2 ? afterFirst : endedAt.getTime() - startedAt.getTime();
    if (engine) this.#deps.counters.addSampled(engine, tokens, ms / 1000);
    if (record.continuation) this.#deps.counters.continuations[record.continuation] += 1;
  }

  async #recordOrSayWhy(progress: Progress, end: End): Promise<Failure | null> {
    const record = recordOf(this.#call, progress, {
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
        await this.#record(
          { ...progress, result: EMPTY_RESULT },
          { status: 'failed', httpStatus: why.status, ...endedFor(why) },
        );
      return why;
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw new Failure(500, 'not_recorded', "the call could not be recorded: the gateway's log has the reason", {
        cause: error,
      });
    }
  }
}

const endedFor = (why: Failure): Pick<Ending, 'reason' | 'fault' | 'fillsBytes'> => ({
  reason: reasonOf(why),
  fault: faultOf(why),
  fillsBytes: why instanceof BytesUsedUp,
});

const reasonOf = ({ code, message }: Failure): string => `${code}: ${message}`.slice(0, 2000);
