import type { Log } from '../../core/log.ts';
import type { Database } from '../../store/database.ts';
import { enterCall, extendCall, isUnderWay, leaveCall, LEASE_SECONDS } from '../../store/queries/calls-under-way.ts';
import { sleep } from '../../core/sleep.ts';
import type { SameCall, SameCalls } from './same-calls.ts';

const POLL_MS = 200;

/** Equal calls of all gateways that share a store, for a runtime whose requests share nothing else. */
export class SameCallsInStore implements SameCalls {
  readonly #db: Database;
  readonly #log: Log;
  readonly #left = new Set<Promise<void>>();

  constructor(db: Database, log: Log) {
    this.#db = db;
    this.#log = log;
  }

  /** The row of a first try need not be awaited, because a retry comes later. */
  enter(key: string): SameCall {
    const entered = enterCall(this.#db, key);
    const beat = setInterval(
      () => void entered.then((id) => extendCall(this.#db, id)).catch(() => {}),
      (LEASE_SECONDS * 1000) / 3,
    );
    entered.catch((error: unknown) => {
      clearInterval(beat);
      this.#log(
        `a call could not be registered as under way, so its retry at another gateway may not wait for it: ${error instanceof Error ? error.message : String(error)}`,
        { level: 'warning' },
      );
    });
    let inside = true;
    const release = () => {
      if (!inside) return;
      inside = false;
      clearInterval(beat);
      // A row that cannot be deleted expires.
      const left = entered.then((id) => leaveCall(this.#db, id)).catch(() => {});
      this.#left.add(left);
      void left.then(() => this.#left.delete(left));
    };
    const earlier = async (signal: AbortSignal) => {
      const id = await entered;
      while (await isUnderWay(this.#db, key, id)) await sleep(POLL_MS, signal);
    };
    return { earlier, release };
  }

  async close(): Promise<void> {
    await Promise.all(this.#left);
  }
}
