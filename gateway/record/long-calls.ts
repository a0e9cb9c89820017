import type { LongCall } from '../../store/queries/long-calls.ts';

type Options = {
  note: (calls: LongCall[]) => Promise<void>;
  end: (callIds: string[]) => Promise<void>;
};

/** Most calls end earlier and write nothing. */
const FIRST_MS = 5_000;
/** A row that is older than several of these is of a dead gateway. */
const NEXT_MS = 8_000;
/** Calls that become long within this time share a statement: one each would take PostgreSQL and the event loop seconds for a thousand streams. */
const TOGETHER_MS = 1_000;

type Followed = { row: () => LongCall; due: number; isNoted: boolean };

/**
 * Writes into the store which calls are under way, while they last long, so that a worker knows what their trials wait for. It changes nothing
 * for the calls: what could not be written is tried again.
 */
export class LongCalls {
  readonly #options: Options;
  readonly #followed = new Map<string, Followed>();
  #ended: string[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  #writing: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(options: Options) {
    this.#options = options;
  }

  /** Follows a call until the function that it returns is called. `row` says what is known of the call by then. */
  follow(callId: string, row: () => LongCall): () => void {
    const followed = { row, due: Date.now() + FIRST_MS, isNoted: false };
    this.#followed.set(callId, followed);
    this.#writeIn(FIRST_MS);
    return () => {
      this.#followed.delete(callId);
      if (followed.isNoted) this.#ended.push(callId);
      if (this.#followed.size + this.#ended.length === 0) this.#forgetTimer();
    };
  }

  /** Resolves when the store has nothing of calls that have ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#forgetTimer();
    await this.#flush();
  }

  #writeIn(ms: number): void {
    if (!this.#isClosed) this.#timer ??= setTimeout(() => void this.#flush(), ms);
  }

  #forgetTimer(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** One statement at a time, so that a row is not written after it was removed. */
  #flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    this.#forgetTimer();
    await this.#noteDue();
    await this.#removeEnded();
    if (this.#followed.size + this.#ended.length > 0) this.#writeIn(TOGETHER_MS);
  }

  async #noteDue(): Promise<void> {
    const now = Date.now();
    const due = [...this.#followed.values()].filter((each) => each.due <= now);
    if (due.length === 0) return;
    // A statement whose answer was lost may have written them.
    for (const each of due) each.isNoted = true;
    try {
      await this.#options.note(due.map(({ row }) => row()));
      for (const each of due) each.due = now + NEXT_MS;
    } catch {
      // They stay due.
    }
  }

  async #removeEnded(): Promise<void> {
    const ended = this.#ended.splice(0);
    if (ended.length > 0) await this.#options.end(ended).catch(() => void this.#ended.push(...ended));
  }
}
