import type { Database } from '../../store/database.ts';
import type { Destination } from './destination.ts';
import type { Pending, RunLog } from './logger-entries.ts';
import type { LoggerProcess } from './logger-process.ts';
import { readTrialTrace, trialsToTrace } from './read-trial-traces.ts';

/** New metrics wait no longer than this for the traces of earlier trials, and for one more. */
const SLICE_MS = 5_000;
/** After so many failures the others wait for the next try, so that a server that answers nothing is not asked for each trial. */
const MOST_FAILURES = 3;
const FIRST_WAIT_MS = 5_000;
const LONGEST_WAIT_MS = 300_000;

type Options = {
  db: Database;
  runId: string;
  destination: Destination;
  program: LoggerProcess;
  confirmHeld: () => Promise<void>;
};

/** Gives a logger the trials of entries as traces. A trace that fails holds nothing else up, and is tried again. */
export class TrialTracer {
  /** Why traces are missing; null: none failed. */
  failure: string | null = null;
  readonly #options: Options;
  /** The number of traces that the logger has, by rollout; null: not read yet. */
  #written: ReadonlyMap<string, number> | null = null;
  #opened: string | null = null;
  /** The rollouts of which the logger has all traces, and those of which some failed. */
  readonly #done = new Set<string>();
  readonly #failed = new Set<string>();
  /** The trials that were written of rollouts that are not done. */
  readonly #kept = new Set<string>();
  /** True when so much failed that nothing else is tried before `#again`. */
  #isDown = false;
  #again = 0;
  #wait = FIRST_WAIT_MS;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Writes traces for some seconds. Returns true if there are more that need not wait. */
  async writeSome({ entries, name, endedAt }: RunLog, signal: AbortSignal): Promise<boolean> {
    const { destination, program } = this.#options;
    const isLater = Date.now() < this.#again;
    if (destination.traces === 0 || (this.#isDown && isLater)) return false;
    // Trials that were carried over have ended when the run has.
    const opened = `${name} ${endedAt?.getTime() ?? 'open'}`;
    if (this.#opened !== opened) this.#written = null;
    if (this.#written === null) {
      const read = await program.traced();
      if (typeof read === 'string') return this.#note([read], true);
      this.#written = read;
      this.#opened = opened;
      this.#done.clear();
    }
    const until = Date.now() + SLICE_MS;
    const open = entries.filter((entry) => !this.#done.has(rolloutOf(entry)));
    const fresh = open.filter((entry) => !this.#failed.has(rolloutOf(entry)));
    const failures: string[] = [];
    for (const entry of [...fresh, ...(isLater ? [] : open.filter((each) => !fresh.includes(each)))]) {
      const isOver = await this.#write(entry, failures, until, signal);
      if (failures.length >= MOST_FAILURES) return this.#note(failures, true);
      if (isOver) return !this.#note(failures);
    }
    if (failures.length > 0 || !isLater) this.#note(failures);
    return false;
  }

  /** Writes the traces of an entry, unless the logger has all of them: one that it has stays one. Returns true if the time is over. */
  async #write(entry: Pending, failures: string[], until: number, signal: AbortSignal): Promise<boolean> {
    const { db, runId, destination, program, confirmHeld } = this.#options;
    const rollout = rolloutOf(entry);
    const chosen = await trialsToTrace(db, runId, entry, destination.traces);
    const before = failures.length;
    const isWritten = chosen.length <= (this.#written?.get(rollout) ?? 0);
    for (const id of isWritten ? [] : chosen.filter((each) => !this.#kept.has(each))) {
      if (Date.now() > until) return true;
      signal.throwIfAborted();
      await confirmHeld();
      const trace = await readTrialTrace(db, id).catch((error: unknown) => String(error));
      const failure = trace === null || typeof trace === 'string' ? trace : await program.trace(rollout, trace);
      if (failure === null) this.#kept.add(id);
      else failures.push(failure);
      if (failures.length >= MOST_FAILURES) break;
    }
    if (failures.length > before) {
      this.#failed.add(rollout);
      return false;
    }
    this.#failed.delete(rollout);
    this.#done.add(rollout);
    for (const id of chosen) this.#kept.delete(id);
    return Date.now() > until;
  }

  /** Notes the failures of a try, and when the next one may be. Returns false. */
  #note([failure]: readonly string[], isDown = false): boolean {
    this.#isDown = isDown;
    if (failure !== undefined) {
      this.failure = `its traces are not written, its metrics are: ${failure}`;
      this.#again = Date.now() + this.#wait;
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT_MS);
    } else if (this.#failed.size === 0) {
      this.failure = null;
      this.#wait = FIRST_WAIT_MS;
    }
    return false;
  }
}

/** The take of an iteration, such as `4.1`, or an evaluation, such as `eval@4`: after a redo, a step has another take. */
const rolloutOf = (entry: Pending): string =>
  entry.iteration === undefined ? entry.evaluation : `${entry.iteration}.${entry.take}`;
