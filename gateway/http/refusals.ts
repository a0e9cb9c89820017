import { MOST_REFUSALS, type RefusalSummary } from '../../store/queries/refusals.ts';
import type { Refusal } from '../../store/schema.ts';
import type { Log } from '../../core/log.ts';
import { isTransient } from '../../core/transient.ts';
import { oneLine } from '../../core/one-line.ts';

/** The trial of a refusal, with its run where that is known. */
type Refused = { id: string; runId?: string | null };
type Pending = RefusalSummary & Pick<Refused, 'runId'>;

type Options = {
  write: (trialId: string, refused: RefusalSummary) => Promise<void>;
  log: Log;
  /** How long refusals are collected before they are written. Null: until `close`, for a runtime whose requests share nothing. */
  everyMs: number | null;
};

const MOST_KNOWN = 10_000;

/**
 * Records refused requests with their trial. No request waits for it, and a trial with many refusals costs one write at a time. While
 * PostgreSQL is away it keeps them: that a trial was refused for this reason is evidence of whose fault its end is (invariant 6).
 */
export class Refusals {
  readonly #options: Options;
  readonly #pending = new Map<string, Pending>();
  /** How many refusals of each trial and reason there were. It limits the lines of the log. */
  readonly #counts = new Map<string, number>();
  #timer: ReturnType<typeof setTimeout> | null = null;
  #writing: Promise<void> = Promise.resolve();
  #isClosing = false;

  constructor(options: Options) {
    this.#options = options;
  }

  add({ id, runId }: Refused, refusal: Refusal): void {
    this.#logRefusal({ id, runId }, refusal);
    const { count, latest } = this.#pending.get(id) ?? { count: 0, latest: [] };
    this.#pending.set(id, { runId, count: count + 1, latest: [refusal, ...latest.slice(0, MOST_REFUSALS - 1)] });
    this.#schedule();
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#flush();
    await this.#writing;
  }

  #schedule(): void {
    const { everyMs } = this.#options;
    if (everyMs !== null) this.#timer ??= setTimeout(() => this.#flush(), everyMs);
  }

  #flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    const pending = [...this.#pending];
    this.#pending.clear();
    this.#writing = this.#write(this.#writing, pending);
  }

  /** Writes one statement at a time, because all would update the same trial's row. */
  async #write(before: Promise<void>, pending: [string, Pending][]): Promise<void> {
    await before;
    const { write, log, everyMs } = this.#options;
    for (const [i, [trialId, { runId, count, latest }]] of pending.entries()) {
      try {
        await write(trialId, { count, latest });
      } catch (error) {
        // The next write would wait for the same database.
        if (isTransient(error) && everyMs !== null && !this.#isClosing) return this.#keep(pending.slice(i));
        log(
          `${count} refusal(s) of trial ${trialId} could not be stored: ${error instanceof Error ? error.message : String(error)}`,
          { level: 'error', run_id: runId ?? undefined, trial_id: trialId },
        );
      }
    }
  }

  /** Puts refusals that could not be written before those that came since. */
  #keep(unwritten: readonly [string, Pending][]): void {
    for (const [trialId, { runId, count, latest }] of unwritten) {
      const since = this.#pending.get(trialId);
      if (!since && this.#pending.size >= MOST_KNOWN) {
        this.#options.log(
          `${count} refusal(s) of trial ${trialId} could not be stored: too many trials wait for PostgreSQL`,
          { level: 'error', run_id: runId ?? undefined, trial_id: trialId },
        );
        continue;
      }
      this.#pending.set(trialId, {
        runId,
        count: count + (since?.count ?? 0),
        latest: [...(since?.latest ?? []), ...latest].slice(0, MOST_REFUSALS),
      });
    }
    this.#schedule();
  }

  /** Logs the 1st, 2nd, 4th, 8th, … refusal of a trial for one reason. */
  #logRefusal({ id: trialId, runId }: Refused, { code, status, request, message, size, digest }: Refusal): void {
    const key = `${trialId} ${code}`;
    if (this.#counts.size >= MOST_KNOWN) this.#counts.clear();
    const times = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, times);
    if ((times & (times - 1)) !== 0) return;
    const body = size === null ? '' : ` (${size} bytes${digest === null ? '' : `, SHA-256 ${digest.slice(0, 16)}…`})`;
    const again = times > 1 ? ` (refusal ${times} for this reason)` : '';
    this.#options.log(
      oneLine(`trial ${trialId}: ${request} was refused, ${status} ${code}${again}: ${message}${body}`),
      { level: 'warning', run_id: runId ?? undefined, trial_id: trialId, error: code },
    );
  }
}
