import type { CallRecord } from '../../store/queries/record-calls.ts';
import { isTransient } from '../../core/transient.ts';
import { storeUnavailable } from '../failure.ts';
import { sleep } from '../../core/sleep.ts';
import { aboutLost, type GroupCommitOptions } from './group-commit.ts';
import type { Recorder } from './recorder.ts';

type Verdict = 'recorded' | 'refused';

const PAUSE_MS = 100;

/** Commits each call by itself, for a runtime whose requests share no connection. */
export class SingleCommit implements Recorder {
  readonly #options: GroupCommitOptions;
  readonly #pending = new Set<Promise<unknown>>();

  constructor(options: GroupCommitOptions) {
    this.#options = options;
  }

  async record(call: CallRecord, runId: string | null = null): Promise<Verdict> {
    const { waitMs, log } = this.#options;
    const deadline = Date.now() + waitMs;
    const late = new AbortController();
    const committing = this.#commit(call, runId, late.signal);
    this.keep(committing);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const expired = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        log(`call ${call.id} of trial ${call.trialId} could not be recorded in time`, aboutLost(call, runId));
        late.abort();
        reject(storeUnavailable());
      }, deadline - Date.now());
    });
    try {
      return await Promise.race([committing, expired]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits for all commits under way, and for retractions. */
  async close(): Promise<void> {
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  /** Tries until the call is committed or refused, fails for a reason of its own, or is late. A late commit is retracted. */
  async #commit(call: CallRecord, runId: string | null, late: AbortSignal): Promise<Verdict> {
    for (;;) {
      try {
        const verdict = (await this.#options.commit([call])).has(call.id) ? 'refused' : 'recorded';
        if (late.aborted && verdict === 'recorded') await this.#retract(call, runId);
        return verdict;
      } catch (error) {
        if (!isTransient(error)) {
          this.#options.log(
            `call ${call.id} of trial ${call.trialId} cannot be recorded: ${String(error)}`,
            aboutLost(call, runId),
          );
          throw error;
        }
        // A connection lost during a commit leaves its result unknown, so a late call may have been committed.
        if (late.aborted) {
          await this.#retract(call, runId);
          throw error;
        }
        await sleep(PAUSE_MS);
      }
    }
  }

  async #retract(call: CallRecord, runId: string | null): Promise<void> {
    for (;;) {
      try {
        return await this.#options.retract([call.id]);
      } catch (error) {
        if (!isTransient(error))
          return this.#options.log(
            `call ${call.id} counts as completed although its agent got an error, because it could not be retracted: ${String(error)}`,
            aboutLost(call, runId),
          );
        await sleep(PAUSE_MS);
      }
    }
  }

  keep(work: Promise<unknown>): void {
    this.#pending.add(work);
    const forget = () => void this.#pending.delete(work);
    work.then(forget, forget);
  }
}
