import type { Task } from '../../core/task.ts';
import type { Image, SandboxBackend } from './backend.ts';
import { createSandbox } from './create-sandbox.ts';
import type { Sandbox } from './empty-sandbox.ts';
import { destroyWithVerifier } from './destroy-sandbox.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { HostSlots } from './host-slots.ts';
import { sandboxName } from './names.ts';
import { startsOfHost, type Starts } from './starts.ts';
import type { WarmSandboxes, Way } from './warm/warm-sandboxes.ts';

export type HeldSandbox = {
  sandbox: Sandbox;
  backend: SandboxBackend;
  task: Task;
  /** The run's setting for its agents' network. Null means that the agent's file decides. */
  network: RunConfig['network'];
  /** The kind of sandbox in which the agent's work is verified, with its image; null: the agent's. */
  verifier: VerifierPlace | null;
  /** The gateway to which a sandbox that was started before leads; null: its network is made when the agent starts. */
  gateway: string | null;
};
export type VerifierPlace = { backend: SandboxBackend; image: Image | null };
type Entry = HeldSandbox & { idle: NodeJS.Timeout };
type Wanted = Omit<HeldSandbox, 'sandbox' | 'gateway'> & {
  image: Image | null;
  /** The network that the agent will have, for a sandbox that is started before. Absent: it is not known. */
  way?: Way;
  /** The function that is called when the sandbox's turn to start has come. */
  onTurn?: () => void;
};
type Key = { trialId: string; attempt: number };

type Options = { idleMs?: number; starts?: Starts; warm?: WarmSandboxes | null };

const IDLE_MS = 10 * 60_000;

/** The sandboxes that this worker holds. A sandbox that is not used for a while is removed, because its workflow was ended from outside. */
export class HostSandboxes {
  /** A slot is granted before the trial comes here, is taken together with its sandbox, and is released with it. */
  readonly slots: HostSlots;
  readonly #home: string;
  readonly #idleMs: number;
  readonly #starts: Starts;
  readonly #warm: WarmSandboxes | null;
  readonly #held = new Map<string, Entry>();
  readonly #opening = new Map<string, Promise<void>>();

  constructor(home: string, limit: number, { idleMs = IDLE_MS, starts = startsOfHost(), warm = null }: Options = {}) {
    this.#home = home;
    this.slots = new HostSlots(limit);
    this.#idleMs = idleMs;
    this.#starts = starts;
    this.#warm = warm;
  }

  /** Opens a sandbox. An opening that is cancelled, even at its last moment, leaves nothing behind. */
  async open(key: Key, wanted: Wanted, signal: AbortSignal): Promise<void> {
    const name = nameOf(key);
    // A first try that Temporal has given up may still be opening the sandbox here.
    while (this.#opening.has(name)) await this.#opening.get(name)?.catch(() => {});
    const opening = this.#open(key, wanted, signal).finally(() => this.#opening.delete(name));
    this.#opening.set(name, opening);
    await opening;
  }

  async #open(key: Key, { image, way, onTurn, ...wanted }: Wanted, signal: AbortSignal): Promise<void> {
    await this.close(key);
    const { task, backend } = wanted;
    let gateway: string | null = null;
    const sandbox = await this.#starts.run({
      what: `sandbox ${nameOf(key)}`,
      signal,
      start: (within) => {
        onTurn?.();
        const warm = way === undefined ? null : (this.#warm?.take(backend, way) ?? null);
        gateway = warm?.gateway ?? null;
        const started = warm?.sandbox ?? null;
        return createSandbox({ home: this.#home, ...key, task, backend, image, started, signal: within });
      },
      undo: (late) => this.#removeLate(key, late, wanted),
    });
    this.#held.set(nameOf(key), { sandbox, gateway, ...wanted, idle: this.#closeLater(key) });
    this.slots.hold(nameOf(key));
    if (!signal.aborted) return;
    await this.close(key);
    signal.throwIfAborted();
  }

  /** A later try may have the sandbox by now, under the same name. */
  async #removeLate(key: Key, late: Sandbox, { backend }: Pick<Wanted, 'backend'>): Promise<void> {
    const mayHaveIt = late.name === sandboxName(key.trialId, key.attempt);
    if (mayHaveIt && (this.#held.has(nameOf(key)) || this.#opening.has(nameOf(key)))) return;
    await destroyWithVerifier(late, backend);
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
    const entry = this.#held.get(nameOf(key));
    if (!entry) return;
    clearTimeout(entry.idle);
    this.#held.delete(nameOf(key));
    const { sandbox, backend, verifier } = entry;
    await destroyWithVerifier(sandbox, backend, verifier?.backend).finally(() => this.slots.release(nameOf(key)));
  }

  #closeLater(key: Key): NodeJS.Timeout {
    return setTimeout(() => void this.close(key).catch(() => {}), this.#idleMs).unref();
  }
}

const nameOf = ({ trialId, attempt }: Key): string => `${trialId}.${attempt}`;
