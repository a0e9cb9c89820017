import type { Task } from './tasks/load-task.ts';
import { createSandbox, type Sandbox } from './sandbox/create-sandbox.ts';
import { destroySandbox } from './sandbox/destroy-sandbox.ts';
import { HostSlots } from './host-slots.ts';

export type Occupied = { sandbox: Sandbox; task: Task };
type Entry = Occupied & { idle: NodeJS.Timeout };
type Key = { trialId: string; attempt: number };

const IDLE_MS = 10 * 60_000;

/** The sandboxes that this worker holds. One that nobody comes back to is removed: its workflow was ended from outside. */
export class HostSandboxes {
  readonly #home: string;
  readonly #slots: HostSlots;
  readonly #held = new Map<string, Entry>();

  constructor(home: string, limit: number) {
    this.#home = home;
    this.#slots = new HostSlots(limit);
  }

  /** Waits for a free slot. */
  async open(key: Key, task: Task, signal: AbortSignal): Promise<void> {
    await this.#slots.take(nameOf(key), signal);
    try {
      const sandbox = await createSandbox({ home: this.#home, ...key, task, signal });
      this.#held.set(nameOf(key), { sandbox, task, idle: this.#closeLater(key) });
    } catch (error) {
      this.#slots.release(nameOf(key));
      throw error;
    }
  }

  /** Runs `work` in the sandbox; undefined when this worker does not hold it. */
  async use<T>(key: Key, work: (occupied: Occupied) => Promise<T>): Promise<T | undefined> {
    const entry = this.#held.get(nameOf(key));
    if (!entry) return undefined;
    clearTimeout(entry.idle);
    try {
      return await work(entry);
    } finally {
      if (this.#held.has(nameOf(key))) entry.idle = this.#closeLater(key);
    }
  }

  async close(key: Key): Promise<void> {
    clearTimeout(this.#held.get(nameOf(key))?.idle);
    if (!this.#held.delete(nameOf(key))) return;
    await destroySandbox({ home: this.#home, ...key }).finally(() => this.#slots.release(nameOf(key)));
  }

  #closeLater(key: Key): NodeJS.Timeout {
    return setTimeout(() => void this.close(key).catch(() => {}), IDLE_MS).unref();
  }
}

const nameOf = ({ trialId, attempt }: Key): string => `${trialId}.${attempt}`;
