import type { Log } from '../../core/log.ts';
import type { DeliveryReport } from '../../store/queries/settle-deliveries.ts';
import { isTransient } from '../../core/transient.ts';

type Options = {
  settle: (delivered: DeliveryReport) => Promise<void>;
  /** How long a delivery waits for others, so that one statement writes many. */
  waitMs: number;
  log: Log;
};

/**
 * Tells the store how replies were delivered, a moment later, so that no call waits for it. Until then the store holds a reply as
 * undelivered, and it stays so if this process dies first.
 */
export class Deliveries {
  readonly #options: Options;
  readonly #tracked = new Set<Promise<void>>();
  #whole: string[] = [];
  #cut: string[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: Options) {
    this.#options = options;
  }

  /** `delivered` resolves to true when the agent received the whole reply, and to null when no reply was recorded. */
  track(callId: string, delivered: Promise<boolean | null>): Promise<void> {
    const tracked = this.#learn(callId, delivered);
    this.#tracked.add(tracked);
    void tracked.then(() => this.#tracked.delete(tracked));
    return tracked;
  }

  async #learn(callId: string, delivered: Promise<boolean | null>): Promise<void> {
    const isWhole = await delivered;
    if (isWhole === null) return;
    (isWhole ? this.#whole : this.#cut).push(callId);
    this.#writeIn(this.#options.waitMs);
  }

  #writeIn(ms: number): void {
    this.#timer ??= setTimeout(() => void this.flush().catch(() => {}), ms);
  }

  /** Resolves when the store has every delivery that this process knows of. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(
      () => this.#write(),
      () => this.#write(),
    );
    return this.#writing;
  }

  /** Waits for replies that are still being sent. */
  async close(): Promise<void> {
    await Promise.all(this.#tracked);
    await this.flush().catch(() => {});
    if (this.#timer) clearTimeout(this.#timer);
  }

  async #write(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    const [whole, cut] = [this.#whole.splice(0), this.#cut.splice(0)];
    if (whole.length + cut.length === 0) return;
    try {
      await this.#options.settle({ whole, cut });
    } catch (error) {
      if (!isTransient(error)) {
        return this.#options.log(
          `could not store for ${whole.length + cut.length} replies whether they were delivered: ${String(error)}`,
          { level: 'error' },
        );
      }
      this.#whole.push(...whole);
      this.#cut.push(...cut);
      this.#writeIn(RETRY_MS);
      throw error;
    }
  }
}

const RETRY_MS = 1_000;
