import { createHash } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { raceAbort } from '../../../core/race-abort.ts';
import { doorsOf } from '../network.ts';
import { notStarted, type ProcessResult } from '../run-process.ts';
import { sweepSandboxes } from '../sweep-sandboxes.ts';
import { ForkServer, ForkServerError, type WarmProcessSpec } from './fork-server.ts';

const IDLE_MS = 120_000;
/** A server that could not start is tried again after this time. */
const RETRY_MS = 600_000;
/** A burst of trials reads the agent's folder once. */
const CHANGES_MS = 1000;

type Entry = {
  server: Promise<ForkServer | null>;
  stop: AbortController;
  trials: number;
  idle: NodeJS.Timeout | undefined;
};

/** The fork servers of this process. The server of an agent that has no trial for a while ends. */
export class ForkServers {
  readonly #kept = new Map<string, Entry>();
  readonly #changes = new Map<string, { at: number; read: Promise<string> }>();
  readonly #swept = new Map<string, Promise<unknown>>();
  readonly #idleMs: number;

  constructor(idleMs = IDLE_MS) {
    this.#idleMs = idleMs;
  }

  /** Runs the trial as a fork. Returns null where that is not possible; the reason is logged once. */
  async run(spec: WarmProcessSpec): Promise<ProcessResult | null> {
    const key = await this.#keyOf(spec);
    const entry = this.#kept.get(key) ?? this.#begin(key, spec);
    clearTimeout(entry.idle);
    entry.trials += 1;
    let isCold = false;
    try {
      const server = await raceAbort(entry.server, spec.signal, () => new Cancelled());
      if (server?.isOver === true) {
        this.#forget(key, entry);
        return await this.run(spec);
      }
      isCold = server === null;
      return (await server?.runTrial(spec)) ?? null;
    } catch (error) {
      if (error instanceof Cancelled) return notStarted();
      throw error;
    } finally {
      entry.trials -= 1;
      if (entry.trials === 0) entry.idle = this.#endLater(key, entry, isCold ? RETRY_MS : this.#idleMs);
    }
  }

  async close(): Promise<void> {
    const all = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.all(all.map(end));
  }

  #begin(key: string, spec: WarmProcessSpec): Entry {
    const stop = new AbortController();
    const server = this.#sweep(spec.forkServer.home).then(() => start(spec, stop.signal));
    const entry: Entry = { server, stop, trials: 0, idle: undefined };
    // The host failed. The next trial tries again.
    entry.server.catch(() => this.#forget(key, entry));
    this.#kept.set(key, entry);
    return entry;
  }

  /** Removes, once for each home, the sandboxes that an earlier process left when it was killed. */
  #sweep(home: string): Promise<unknown> {
    const sweep = this.#swept.get(home) ?? sweepSandboxes(home);
    this.#swept.set(home, sweep);
    return sweep;
  }

  #endLater(key: string, entry: Entry, ms: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#forget(key, entry);
      void end(entry);
    }, ms).unref();
  }

  #forget(key: string, entry: Entry): void {
    if (this.#kept.get(key) === entry) this.#kept.delete(key);
  }

  /** Trials with the same key can be forks of one server. A changed file in the agent's folders makes another key. */
  async #keyOf({ forkServer, network, isolation, env }: WarmProcessSpec): Promise<string> {
    const own = Object.keys(env).filter((name) => env[name] !== forkServer.env[name]);
    const named = forkServer.mounts.filter(({ inside }) =>
      forkServer.argv.some((argument) => argument.startsWith(`${inside}/`)),
    );
    const changes = await Promise.all(named.map(({ host }) => this.#changesOf(host)));
    return createHash('sha256')
      .update(JSON.stringify([forkServer, network.kind, doorsOf(network), isolation, own.toSorted(), changes]))
      .digest('hex');
  }

  #changesOf(folder: string): Promise<string> {
    const known = this.#changes.get(folder);
    if (known && performance.now() - known.at < CHANGES_MS) return known.read;
    const read = changesOf(folder);
    this.#changes.set(folder, { at: performance.now(), read });
    return read;
  }
}

class Cancelled extends Error {}

async function start(spec: WarmProcessSpec, signal: AbortSignal): Promise<ForkServer | null> {
  try {
    return await ForkServer.start(spec, signal);
  } catch (error) {
    if (!(error instanceof ForkServerError)) throw error;
    if (signal.aborted) return null;
    console.warn(
      `the agent ${agentOf(spec.forkServer)} starts cold: each trial imports its module itself. Results are the same, starts take longer. The reason: ${error.message}`,
    );
    return null;
  }
}

/** Returns the function as a person named it: by its file on the host. */
function agentOf({ argv, mounts }: WarmProcessSpec['forkServer']): string {
  const [file = '', name = ''] = argv.slice(-2);
  const mount = mounts.find(({ inside }) => file.startsWith(`${inside}/`));
  return `${mount ? mount.host + file.slice(mount.inside.length) : file}:${name}`;
}

async function end({ idle, server, stop }: Entry): Promise<void> {
  clearTimeout(idle);
  stop.abort();
  const started = await server.catch(() => null);
  started?.close();
  await started?.ended;
}

/** Returns the number of files in a folder and the time of the last change. A part that cannot be read does not count. */
async function changesOf(folder: string): Promise<string> {
  const files = await readdir(folder, { recursive: true }).catch(() => []);
  const times = await Promise.all(
    files.map((file) =>
      stat(join(folder, file)).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    ),
  );
  return `${files.length} ${times.reduce((last, each) => Math.max(last, each), 0)}`;
}
