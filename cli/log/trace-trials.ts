import type { Database } from '../../store/database.ts';
import type { Destination } from './destination.ts';
import type { Pending, RunLog } from './logger-entries.ts';
import type { LoggerProcess, TraceFailure } from './logger-process.ts';
import { agentNames, readTrialTrace, trialsToTrace } from './read-trial-traces.ts';

/** New metrics wait no longer than this for the traces of earlier trials, and for one more. */
const SLICE_MS = 5_000;
/** After so many failures of the server in a row the others wait for the next try, so that one that answers nothing is not asked for each trial. */
const MOST_FAILURES = 3;
const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 300_000;

type Options = {
  db: Database;
  runId: string;
  destination: Destination;
  program: Pick<LoggerProcess, 'traced' | 'trace'>;
  confirmHeld: () => Promise<void>;
};

/** What is known of the traces of an entry. */
type Progress = {
  /** The trials of which the logger has traces; null: it was not asked yet, or the entry is full. */
  written: Set<string> | null;
  /** How many these are. */
  count: number;
  isDone: boolean;
  /** True when each of its trials was tried: what is missing waits until failures are tried again. */
  isTried: boolean;
  /** How often something of it failed, and how often each trial of it did. Those that failed least are tried first. */
  failures: number;
  failed: Map<string, number>;
};

/** One call of `writeSome`. */
type Slice = {
  until: number;
  /** True when what failed before is to be tried again. */
  withFailed: boolean;
  hasWritten: boolean;
  /** Why a trace failed; null: none did. */
  failure: string | null;
};

/** Gives a logger the trials of entries as traces. A trace that fails holds nothing else up, and is tried again. */
export class TrialTracer {
  /** Why traces are missing; null: none failed. */
  failure: string | null = null;
  readonly #options: Options;
  readonly #agentName: (label: string) => Promise<string>;
  /** By the name of the entry. */
  readonly #progress = new Map<string, Progress>();
  #opened: string | null = null;
  #failuresInARow = 0;
  /** When what failed is tried again. */
  #again = 0;
  #wait = FIRST_WAIT_MS;

  constructor(options: Options) {
    this.#options = options;
    this.#agentName = agentNames(options.db, options.runId);
  }

  /** The number of traces that the logger has of entries, as far as it was asked. */
  count(entries: readonly Pending[]): number {
    return entries.reduce((sum, entry) => sum + (this.#progress.get(nameOf(entry))?.count ?? 0), 0);
  }

  /** Writes traces for some seconds. `hasMore`: there are more that need not wait. */
  async writeSome(
    { entries, name, endedAt }: RunLog,
    signal: AbortSignal,
  ): Promise<{ hasWritten: boolean; hasMore: boolean }> {
    const now = Date.now();
    const withFailed = now >= this.#again;
    const { traces } = this.#options.destination;
    if (traces === 0 || (this.#isDown && !withFailed)) return { hasWritten: false, hasMore: false };
    const opened = `${name} ${endedAt?.getTime() ?? 'open'}`;
    if (this.#opened !== opened) this.#begin(opened);
    const slice: Slice = { until: now + SLICE_MS, withFailed, hasWritten: false, failure: null };
    const open = entries.map((entry) => ({ entry, progress: this.#progressOf(entry) }));
    const due = open.filter(({ progress }) => !progress.isDone && (withFailed || !progress.isTried));
    let hasMore = false;
    for (const { entry, progress } of due.toSorted((a, b) => a.progress.failures - b.progress.failures)) {
      hasMore = Date.now() > slice.until || (await this.#write(entry, progress, slice, signal));
      if (this.#isDown && slice.failure !== null) {
        hasMore = false;
        break;
      }
      if (hasMore) break;
    }
    if (slice.failure !== null) {
      this.failure = `it has the metrics, but traces are missing: ${slice.failure}`;
      this.#again = Date.now() + this.#wait;
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT_MS);
    } else if (open.every(({ progress }) => progress.failures === 0)) {
      this.failure = null;
      this.#failuresInARow = 0;
      this.#wait = FIRST_WAIT_MS;
    }
    return { hasWritten: slice.hasWritten, hasMore };
  }

  get #isDown(): boolean {
    return this.#failuresInARow >= MOST_FAILURES;
  }

  #progressOf(entry: Pending): Progress {
    const known = this.#progress.get(nameOf(entry));
    if (known) return known;
    const progress: Progress = {
      written: null,
      count: 0,
      isDone: false,
      isTried: false,
      failures: 0,
      failed: new Map(),
    };
    this.#progress.set(nameOf(entry), progress);
    return progress;
  }

  /** Looks again at entries with room for more traces: trials that were carried over may have ended when a branch or the run has. */
  #begin(opened: string): void {
    this.#opened = opened;
    for (const [entry, progress] of this.#progress)
      if (!this.#isFull(progress))
        this.#progress.set(entry, { ...progress, isDone: false, isTried: false, failures: 0, failed: new Map() });
  }

  #isFull({ count }: Progress): boolean {
    return count >= this.#options.destination.traces;
  }

  /** Writes the traces of an entry that the logger does not have. Returns true if the time is over before each of them was tried. */
  async #write(entry: Pending, progress: Progress, slice: Slice, signal: AbortSignal): Promise<boolean> {
    const { db, runId, destination, program } = this.#options;
    const { failed } = progress;
    if (progress.written === null) {
      const answer = await program.traced(nameOf(entry));
      if (!(answer instanceof Set)) {
        progress.isTried = true;
        this.#noteFailure(slice, progress, answer);
        return false;
      }
      progress.written = answer;
      progress.count = answer.size;
      if (Date.now() > slice.until) return true;
    }
    const { written } = progress;
    const room = destination.traces - progress.count;
    const chosen = room > 0 ? await trialsToTrace(db, runId, entry, destination.traces) : [];
    const missing = chosen.filter((id) => !written.has(id)).slice(0, room);
    for (const id of failed.keys()) if (!missing.includes(id)) failed.delete(id);
    const due = missing
      .filter((id) => slice.withFailed || !failed.has(id))
      .toSorted((a, b) => (failed.get(a) ?? 0) - (failed.get(b) ?? 0));
    for (const [index, id] of due.entries()) {
      const failure = await this.#trace(entry, id, signal);
      if (failure === null) {
        this.#failuresInARow = 0;
        slice.hasWritten = true;
        failed.delete(id);
        written.add(id);
        progress.count = written.size;
      } else {
        failed.set(id, (failed.get(id) ?? 0) + 1);
        this.#noteFailure(slice, progress, failure);
        if (this.#isDown) return false;
      }
      if (Date.now() > slice.until && index < due.length - 1) return true;
    }
    progress.isTried = true;
    progress.isDone = failed.size === 0;
    if (progress.isDone) progress.failures = 0;
    if (this.#isFull(progress)) progress.written = null;
    return false;
  }

  /** Returns null, or why it failed. */
  async #trace(entry: Pending, trialId: string, signal: AbortSignal): Promise<TraceFailure | null> {
    const { db, program, confirmHeld } = this.#options;
    signal.throwIfAborted();
    await confirmHeld();
    const trace = await readTrialTrace(db, trialId, this.#agentName).catch((error: unknown) => String(error));
    if (typeof trace === 'string') return { reason: trace, isRefused: true };
    return trace && program.trace(nameOf(entry), trace);
  }

  /** Notes a failure. A refusal of one trace tells nothing of the others, so only one of the server counts for all of them. */
  #noteFailure(slice: Slice, progress: Progress, { reason, isRefused }: TraceFailure): void {
    slice.failure = reason;
    progress.failures += 1;
    if (!isRefused) this.#failuresInARow += 1;
  }
}

/** The take of an iteration, such as `4.1`, or an evaluation, such as `eval@4`: after a redo, a step has another take. */
const nameOf = (entry: Pending): string =>
  entry.iteration === undefined ? entry.evaluation : `${entry.iteration}.${entry.take}`;
