import { sleep } from '../../core/sleep.ts';
import { Failure } from '../failure.ts';
import { asEvent, KEEP_ALIVE } from '../reply-formats.ts';

type Options = {
  /** Reads a mark of what the views of a run show; null if there is no such run. */
  readMark: (runId: string) => Promise<string | null>;
  everyMs?: number;
  keepAliveMs?: number;
  most?: number;
};

/** A run that is read again and again, once for all who follow it. */
type Watch = {
  followers: number;
  /** Null before the first answer. */
  mark: string | null;
  /** Resolves at the next answer, with false when none will come. */
  next: PromiseWithResolvers<boolean>;
};

/** The record is read for at most this part of the time. */
const REST = 20;

/** Tells pages that something of a run has changed. The record is read once a while for each run, however many follow it. */
export class RunEvents {
  readonly #readMark: Options['readMark'];
  readonly #everyMs: number;
  readonly #keepAliveMs: number;
  readonly #most: number;
  readonly #watches = new Map<string, Watch>();
  readonly #closing = new AbortController();
  #followers = 0;

  constructor({ readMark, everyMs = 2_000, keepAliveMs = 15_000, most = 100 }: Options) {
    this.#readMark = readMark;
    this.#everyMs = everyMs;
    this.#keepAliveMs = keepAliveMs;
    this.#most = most;
  }

  /**
   * Returns the events of a run as an event stream: `now` at first, or `changed` if the state is another one than the follower knows, and `changed` at
   * each later change. The events end when the record cannot be read and when the gateway stops.
   * @param known the id of the last event that the follower received
   * @throws Failure `too_many_followers`
   */
  follow(runId: string, known: string | null): AsyncIterableIterator<Uint8Array, undefined> {
    if (this.#followers >= this.#most || this.#closing.signal.aborted) throw tooMany();
    const watch = this.#watches.get(runId) ?? this.#begin(runId);
    this.#followers++;
    watch.followers++;
    let isOver = false;
    const leave = async (): Promise<IteratorReturnResult<undefined>> => {
      if (!isOver) {
        isOver = true;
        this.#followers--;
        watch.followers--;
      }
      return { done: true, value: undefined };
    };
    let told: string | null = null;
    let at = 0;
    const next = async (): Promise<IteratorResult<Uint8Array, undefined>> => {
      for (;;) {
        const { mark } = watch;
        const isFirst = told === null;
        const isSame = mark === told;
        if (mark !== null && !isOver && (!isSame || performance.now() - at >= this.#keepAliveMs)) {
          at = performance.now();
          told = mark;
          if (isSame) return say(KEEP_ALIVE);
          const name = isFirst && (known === null || known === mark) ? 'now' : 'changed';
          return say(`event: ${name}\nid: ${mark}\n${asEvent('{}')}`);
        }
        if (isOver || !(await watch.next.promise)) return leave();
      }
    };
    const events: AsyncIterableIterator<Uint8Array, undefined> = {
      next,
      return: leave,
      [Symbol.asyncIterator]: () => events,
    };
    return events;
  }

  /** Ends all events. */
  close(): void {
    this.#closing.abort();
  }

  #begin(runId: string): Watch {
    const watch: Watch = { followers: 0, mark: null, next: Promise.withResolvers() };
    this.#watches.set(runId, watch);
    void this.#watch(runId, watch);
    return watch;
  }

  async #watch(runId: string, watch: Watch): Promise<void> {
    const { signal } = this.#closing;
    try {
      do {
        const start = performance.now();
        // Who follows asks for itself after a failure, and learns why.
        watch.mark = await this.#readMark(runId).catch(() => null);
        const { resolve } = watch.next;
        if (watch.mark !== null) watch.next = Promise.withResolvers();
        resolve(watch.mark !== null);
        // Also after a failure: all who followed come back.
        await sleep(Math.max(this.#everyMs, REST * (performance.now() - start)), signal);
      } while (watch.mark !== null && watch.followers > 0);
    } catch {
      // The gateway stops.
    } finally {
      this.#watches.delete(runId);
      watch.next.resolve(false);
    }
  }
}

const encoder = new TextEncoder();
const say = (text: string): IteratorYieldResult<Uint8Array> => ({ done: false, value: encoder.encode(text) });

const tooMany = () =>
  new Failure(
    503,
    'too_many_followers',
    'too many pages follow runs here, or the gateway stops: ask for the run itself',
    {
      headers: { 'retry-after': '30' },
    },
  );
