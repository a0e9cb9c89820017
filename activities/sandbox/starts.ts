import { availableParallelism } from 'node:os';
import { SandboxError } from './errors.ts';
import { HostSlots } from './host-slots.ts';

/** A start is mostly work of the disk and of the container engine, which more starts at the same time only slow down. */
const AT_ONCE = 4 * availableParallelism();
/** A start copies the task's files, of which there may be gigabytes. One that takes longer hangs. */
const START_SECONDS = 300;

type Start<T> = {
  /** For people: which sandbox it is. */
  what: string;
  signal: AbortSignal;
  start: (signal: AbortSignal) => Promise<T>;
  /** Removes what a start made that ended after its time. */
  undo: (late: T) => Promise<void>;
};

/** Bounds the starts of sandboxes on this host: how many there are at the same time, and how long one takes. Others wait in their order. */
export class Starts {
  readonly #slots: HostSlots;
  readonly #seconds: number;

  constructor({ atOnce = AT_ONCE, seconds = START_SECONDS }: { atOnce?: number; seconds?: number } = {}) {
    this.#slots = new HostSlots(atOnce);
    this.#seconds = seconds;
  }

  /** Waits for a turn. The function that it returns ends the turn, and may be called more than once. Rejects with the signal's reason when the signal aborts. */
  async begin(signal: AbortSignal): Promise<() => void> {
    const permit = await this.#slots.permit(signal);
    return () => this.#slots.releasePermit(permit);
  }

  /**
   * Waits for a turn and starts. A start that hangs keeps its turn for no longer than its time, whether it heeds the signal or not.
   * @throws SandboxError when it does not end in its time; the signal's reason on abort
   */
  async run<T>({ what, signal, start, undo }: Start<T>): Promise<T> {
    const end = await this.begin(signal);
    const late = AbortSignal.timeout(this.#seconds * 1000);
    const hangs = Promise.withResolvers<never>();
    late.addEventListener('abort', () => hangs.reject(late.reason), { once: true });
    hangs.promise.catch(() => {});
    const started = start(AbortSignal.any([signal, late]));
    try {
      return await Promise.race([started, hangs.promise]);
    } catch (error) {
      if (!late.aborted) throw error;
      void started.then(undo).catch(() => {});
      signal.throwIfAborted();
      throw new SandboxError(
        `${what} did not start within ${this.#seconds} s: the disk or the container engine of this host does not respond`,
        { cause: error },
      );
    } finally {
      end();
    }
  }
}

let ofHost: Starts | null = null;

/** Returns the starts of this process's host. */
export const startsOfHost = (): Starts => (ofHost ??= new Starts());
