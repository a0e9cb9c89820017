import type { Log } from '../../core/log.ts';
import { inTime } from '../../core/in-time.ts';
import type { LongCall } from '../../store/queries/long-calls.ts';

type Options = {
  note: (calls: LongCall[]) => Promise<void>;
  end: (callIds: string[]) => Promise<void>;
  log: Log;
};

/** Most calls end earlier and write nothing. */
const FIRST_MS = 5_000;
/** A row that is older than several of these is of a dead gateway. */
const NEXT_MS = 8_000;
/** Calls that become long within this time share a statement: one each would take PostgreSQL and the event loop seconds for a thousand streams. */
const TOGETHER_MS = 1_000;
/** The same for calls that end: until its row is removed, a call seems to be under way. */
const END_TOGETHER_MS = 200;
/** After a failure, such as of a database that is away. */
const RETRY_MS = 4_000;
/** One statement that hangs must not keep the rows of all other calls from being renewed. */
const STATEMENT_MS = 8_000;

type Followed = { row: () => LongCall; due: number; isNoted: boolean };

/**
 * Writes into the store which calls are under way, while they last long, so that a worker knows what their trials wait for. It changes nothing
 * for the calls: what could not be written is tried again.
 */
export class LongCalls {
  readonly #options: Options;
  readonly #followed = new Map<string, Followed>();
  #ended: string[] = [];
  #timer: { id: ReturnType<typeof setTimeout>; at: number } | null = null;
  #writing: Promise<void> = Promise.resolve();
  #hasFailed = false;
  #isClosed = false;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Follows a call until the function that it returns is called. `row` says what is known of the call by then. */
  follow(callId: string, row: () => LongCall): () => void {
    const followed = { row, due: performance.now() + FIRST_MS, isNoted: false };
    this.#followed.set(callId, followed);
    this.#writeIn(FIRST_MS);
    return () => {
      this.#followed.delete(callId);
      if (followed.isNoted) {
        this.#ended.push(callId);
        if (!this.#hasFailed) this.#writeIn(END_TOGETHER_MS);
      } else if (this.#followed.size + this.#ended.length === 0) this.#forgetTimer();
    };
  }

  /** Removes the rows of calls that have ended. To be called when all have. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#forgetTimer();
    await this.#flush();
  }

  /** Writes after this time, or earlier if that is planned. */
  #writeIn(ms: number): void {
    const at = performance.now() + ms;
    if (this.#isClosed || (this.#timer && this.#timer.at <= at)) return;
    this.#forgetTimer();
    this.#timer = { at, id: setTimeout(() => void this.#flush(), ms) };
  }

  #forgetTimer(): void {
    if (this.#timer) clearTimeout(this.#timer.id);
    this.#timer = null;
  }

  /** One statement at a time, so that a row is not written after it was removed. */
  #flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    this.#forgetTimer();
    const failure = (await this.#noteDue()) ?? (await this.#removeEnded());
    if (failure !== null && !this.#hasFailed)
      this.#options.log(`could not store which calls last long, and tries again: ${failure}`, { level: 'warning' });
    this.#hasFailed = failure !== null;
    if (this.#followed.size + this.#ended.length > 0) this.#writeIn(this.#hasFailed ? RETRY_MS : TOGETHER_MS);
  }

  /** Returns why the rows could not be written. */
  async #noteDue(): Promise<string | null> {
    const now = performance.now();
    const due = [...this.#followed.values()].filter((each) => each.due <= now);
    if (due.length === 0 || this.#isClosed) return null;
    // A statement whose answer was lost may have written them.
    for (const each of due) each.isNoted = true;
    try {
      await inTime(this.#options.note(due.map(({ row }) => row())), STATEMENT_MS);
    } catch (error) {
      return String(error);
    }
    for (const each of due) each.due = now + NEXT_MS;
    return null;
  }

  async #removeEnded(): Promise<string | null> {
    const ended = this.#ended.splice(0);
    if (ended.length === 0) return null;
    try {
      await inTime(this.#options.end(ended), STATEMENT_MS);
    } catch (error) {
      this.#ended.push(...ended);
      return String(error);
    }
    return null;
  }
}
