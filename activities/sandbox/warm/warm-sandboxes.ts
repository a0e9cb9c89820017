import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxBackend } from '../backend.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import { memoryShortage } from '../memory-gate.ts';
import type { Starts } from '../starts.ts';

/** The gateway and the hosts to which a sandbox will lead. */
export type Way = { gateway: string; hosts?: readonly string[] };
type Warm = { sandbox: Sandbox; gateway: string };
type Kind = { backend: SandboxBackend; way: Way; key: string };

type Options = {
  /** The deployment's folder. */
  home: string;
  /** The number of sandboxes that wait, at most. */
  count: number;
  starts: Starts;
  shortage?: () => string | null;
  quietMs?: number;
  idleMs?: number;
};

/** Sandboxes are started ahead when no trial has asked for one in this time, so that they do not delay those that trials wait for. */
const QUIET_MS = 2000;
/** Sandboxes that no trial takes are removed after this time. */
const IDLE_MS = 10 * 60_000;
/** The time that the end of a worker waits for a start that is under way. */
const CLOSE_MS = 10_000;

/**
 * Empty sandboxes that this worker has started before trials ask for them, of the kind and with the network of the last trial. Each is given to one
 * trial, which removes it as its own. A worker that dies leaves them to the next one, as it leaves those of trials.
 */
export class WarmSandboxes {
  readonly #options: Options;
  /** What is started ahead is for any trial, so its lines in the log must not name the trial that asked. */
  readonly #outsideTrials = AsyncLocalStorage.snapshot();
  readonly #stop = new AbortController();
  readonly #ready: (Warm & Kind)[] = [];
  #last: Kind | null = null;
  #askedAt = -Infinity;
  #filling: Promise<void> | null = null;
  #idle: NodeJS.Timeout | undefined;

  constructor(options: Options) {
    this.#options = options;
  }

  /** The number of sandboxes that wait. */
  get size(): number {
    return this.#ready.length;
  }

  /** Returns a sandbox, which is the caller's from now on; null when none waits. */
  take(backend: SandboxBackend, way: Way): Warm | null {
    if (backend.startAhead === undefined || this.#stop.signal.aborted) return null;
    // The statement names the engine and its runtime.
    const key = JSON.stringify([backend.statement, way.hosts]);
    this.#last = { backend, way, key };
    this.#askedAt = performance.now();
    this.#filling ??= this.#outsideTrials(() => this.#fill()).finally(() => (this.#filling = null));
    const at = this.#ready.findIndex((each) => each.key === key);
    const [taken] = at < 0 ? [] : this.#ready.splice(at, 1);
    return taken ? { sandbox: taken.sandbox, gateway: taken.gateway } : null;
  }

  /** Removes all that wait. None is started any more. */
  async close(): Promise<void> {
    this.#stop.abort();
    // An engine that does not answer must not keep a worker from ending. What comes later, the next worker removes.
    await Promise.race([this.#filling, sleep(CLOSE_MS, undefined, { ref: false })]);
    clearTimeout(this.#idle);
    await this.#removeAll();
  }

  /** Starts sandboxes one after the other until there are enough. It never rejects. */
  async #fill(): Promise<void> {
    const { count, quietMs = QUIET_MS, shortage = () => memoryShortage(false) } = this.#options;
    const { signal } = this.#stop;
    try {
      for (let kind = this.#last; kind !== null && !signal.aborted; kind = this.#last) {
        const quietFor = performance.now() - this.#askedAt;
        if (quietFor < quietMs) {
          await sleep(quietMs - quietFor, undefined, { signal, ref: false });
          continue;
        }
        await this.#removeAll(({ key }) => key !== kind.key);
        if (this.#ready.length >= count || shortage() !== null) return;
        const started = await this.#start(kind, signal);
        this.#ready.push(started);
        // The time begins anew with each, so that none stays that was started after it had run out.
        clearTimeout(this.#idle);
        this.#idle = setTimeout(() => void this.#removeAll(), this.#options.idleMs ?? IDLE_MS).unref();
      }
    } catch (error) {
      if (signal.aborted) return;
      // The next trial that asks begins anew.
      console.error(`no sandbox could be started ahead: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  async #start(kind: Kind, signal: AbortSignal): Promise<Warm & Kind> {
    const { home, starts } = this.#options;
    const { backend, way } = kind;
    const name = `warm-${randomUUID().slice(0, 8)}.1`;
    const { gateway, hosts } = way;
    return starts.run({
      what: `the warm sandbox ${name}`,
      signal,
      start: async (within) => {
        const sandbox = await backend.start({ home, name, image: null });
        const network = { kind: 'gateway', url: gateway, folder: sandbox.root, ...(hosts ? { hosts } : {}) } as const;
        try {
          await backend.startAhead?.(sandbox, network, within);
          return { ...kind, sandbox, gateway };
        } catch (error) {
          await backend.destroy(home, name);
          throw error;
        }
      },
      undo: () => backend.destroy(home, name),
    });
  }

  async #removeAll(isRemoved: (warm: Kind) => boolean = () => true): Promise<void> {
    const removed = this.#ready.filter(isRemoved);
    const left = this.#ready.filter((each) => !removed.includes(each));
    this.#ready.splice(0, this.#ready.length, ...left);
    await Promise.all(removed.map(({ backend, sandbox }) => backend.destroy(sandbox.home, sandbox.name)));
  }
}
