import { FairQueue } from './fair-queue.ts';

const POLL_MS = 250;
const MOST = 10_000;
const MAX_TIMER_MS = 2 ** 31 - 1;

type Waiting = { wake: () => void };

/** The calls that wait for room, in the order of their trials' turns. The first looks again whenever a place may have come free. */
export class WaitingLine {
  readonly #queue = new FairQueue<Waiting>();

  get length(): number {
    return this.#queue.size;
  }

  get isFull(): boolean {
    return this.#queue.size >= MOST;
  }

  /** Notes that a place may have come free. */
  wake(): void {
    this.#queue.first()?.wake();
  }

  /**
   * Waits until it is the trial's turn and `attempt` returns a value. Returns null when it is `until` (ms since the epoch) before that. Rejects
   * with the signal's reason.
   */
  async wait<T>(
    trialId: string,
    attempt: (contended: boolean) => Promise<T | null>,
    { signal, until }: { signal: AbortSignal; until: number },
  ): Promise<T | null> {
    let woken = Promise.withResolvers<void>();
    const waiting = { wake: () => woken.resolve() };
    const leave = this.#queue.add(trialId, waiting);
    // The call leaves at once and not after the wait, because a Worker may end a request at any moment once its agent has left.
    const gone = () => {
      leave();
      this.wake();
      waiting.wake();
    };
    signal.addEventListener('abort', gone);
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      while (Date.now() < until) {
        signal.throwIfAborted();
        const isFirst = this.#queue.first() === waiting;
        // Only the first one polls. So it also notices room that was given up and engines that joined, which nobody announces.
        timer = setTimeout(waiting.wake, Math.min(isFirst ? POLL_MS : Infinity, until - Date.now(), MAX_TIMER_MS));
        await woken.promise;
        clearTimeout(timer);
        woken = Promise.withResolvers<void>();
        signal.throwIfAborted();
        if (this.#queue.first() !== waiting) continue;
        const found = await attempt(this.#queue.size > 1);
        if (found === null) continue;
        this.#queue.shift();
        return found;
      }
      return null;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', gone);
      leave();
      this.wake();
    }
  }
}
