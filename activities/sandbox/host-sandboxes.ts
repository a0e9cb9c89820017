import type { Task } from '../../core/task.ts';
import { createSandbox, type Sandbox } from './create-sandbox.ts';
import { destroySandbox } from './destroy-sandbox.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { HostSlots } from './host-slots.ts';

/** `network` is the run's setting for its agents' network. Null means that the agent's file decides. */
export type HeldSandbox = { sandbox: Sandbox; task: Task; network: RunConfig['network'] };
type Entry = HeldSandbox & { idle: NodeJS.Timeout };
type Key = { trialId: string; attempt: number };

const IDLE_MS = 10 * 60_000;

/** The sandboxes that this worker holds. A sandbox that is not used for a while is removed, because its workflow was ended from outside. */
export class HostSandboxes {
  /** A slot is granted before the trial comes here, is taken together with its sandbox, and is released with it. */
  readonly slots: HostSlots;
  readonly #home: string;
  readonly #idleMs: number;
  readonly #held = new Map<string, Entry>();
  readonly #opening = new Map<string, Promise<void>>();

  constructor(home: string, limit: number, idleMs = IDLE_MS) {
    this.#home = home;
    this.slots = new HostSlots(limit);
    this.#idleMs = idleMs;
  }

  /** Opens a sandbox. An opening that is cancelled, even at its last moment, leaves nothing behind. */
  async open(key: Key, task: Task, signal: AbortSignal, network: RunConfig['network'] = null): Promise<void> {
    const name = nameOf(key);
    // A first try that Temporal has given up may still be opening the sandbox here.
    while (this.#opening.has(name)) await this.#opening.get(name)?.catch(() => {});
    const opening = this.#open(key, task, signal, network).finally(() => this.#opening.delete(name));
    this.#opening.set(name, opening);
    await opening;
  }

  async #open(key: Key, task: Task, signal: AbortSignal, network: RunConfig['network']): Promise<void> {
    await this.close(key);
    const sandbox = await createSandbox({ home: this.#home, ...key, task, signal });
    this.#held.set(nameOf(key), { sandbox, task, network, idle: this.#closeLater(key) });
    this.slots.hold(nameOf(key));
    if (!signal.aborted) return;
    await this.close(key);
    signal.throwIfAborted();
  }

  /** Runs `work` in the sandbox; undefined when this worker does not hold it. */
  async use<T>(key: Key, work: (occupied: HeldSandbox) => Promise<T>): Promise<T | undefined> {
    const entry = this.#held.get(nameOf(key));
    if (!entry) return undefined;
    clearTimeout(entry.idle);
    try {
      return await work(entry);
    } finally {
      if (this.#held.get(nameOf(key)) === entry) entry.idle = this.#closeLater(key);
    }
  }

  async close(key: Key): Promise<void> {
    clearTimeout(this.#held.get(nameOf(key))?.idle);
    if (!this.#held.delete(nameOf(key))) return;
    await destroySandbox({ home: this.#home, ...key }).finally(() => this.slots.release(nameOf(key)));
  }

  #closeLater(key: Key): NodeJS.Timeout {
    return setTimeout(() => void this.close(key).catch(() => {}), this.#idleMs).unref();
  }
}

const nameOf = ({ trialId, attempt }: Key): string => `${trialId}.${attempt}`;
