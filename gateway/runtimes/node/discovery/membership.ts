import type { Log } from '../../../../core/log.ts';
import { isRelayed, RELAY } from '../../../../core/engine-url.ts';
import { sleep } from '../../../../core/sleep.ts';
import type { Database } from '../../../../store/database.ts';
import {
  changeFound,
  joinReplicas,
  registerReplicas,
  type FoundEngine,
} from '../../../../store/queries/register-replicas.ts';
import type { FoundBy } from '../../../../store/schema.ts';
import { engineIn } from '../../../engines/all.ts';
import type { DiscoveryState } from '../../../http/deps.ts';
import { DISCOVERIES } from './all.ts';
import { messageOf, type DiscoveryOptions, type Finding } from './discovery.ts';

const STORE_PAUSE_MS = 1_000;
const RESTORE_MS = 5_000;

type Options = {
  db: Database;
  discovery: DiscoveryOptions;
  /** Repeats the first writes, without which the gateway does not start. */
  atStart: (write: () => Promise<void>) => Promise<void>;
  log: Log;
};

/**
 * Keeps the deployment's engines in the table of replicas as they are found. After the start changes are written, not the whole: gateways
 * with the same settings see the same changes, and one that cannot see any more takes nothing away.
 */
export class Membership {
  readonly #options: Options;
  readonly #stopping = new AbortController();
  readonly #states = new Map<FoundBy, DiscoveryState>();
  /** The engines that this process has written last. */
  readonly #written = new Map<FoundBy, readonly FoundEngine[]>();
  #following: Promise<unknown> = Promise.resolve();
  #writing: Promise<unknown> = Promise.resolve();
  #timer: ReturnType<typeof setInterval> | null = null;

  constructor(options: Options) {
    this.#options = options;
  }

  /** The state of each discovery except the list, which cannot fail. */
  get states(): DiscoveryState[] {
    return [...this.#states.values()].filter(({ foundBy }) => foundBy !== 'list');
  }

  /**
   * Resolves when each discovery has found its first engines, or has failed to. Rejects when these cannot be written. Engines that only
   * settings of an earlier start named are removed.
   */
  async start(): Promise<void> {
    const { db, discovery, atStart } = this.#options;
    const starts = DISCOVERIES.map(({ foundBy, watch }) => {
      const findings = watch(discovery, this.#stopping.signal);
      if (findings !== null) return this.#follow(foundBy, findings);
      const first = atStart(() => changeFound(db, foundBy, { found: [], list: discovery.engines }));
      return { first, end: Promise.resolve() };
    });
    this.#following = Promise.all(starts.map(({ end }) => end));
    await Promise.all(starts.map(({ first }) => first));
    this.#timer = setInterval(() => void this.#oneByOne(() => this.#restore()), RESTORE_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    if (this.#timer) clearInterval(this.#timer);
    await Promise.all([this.#following, this.#writing]);
  }

  #follow(foundBy: FoundBy, findings: AsyncIterable<Finding>): { first: Promise<void>; end: Promise<void> } {
    const { log, atStart } = this.#options;
    const first = Promise.withResolvers<void>();
    const follow = async () => {
      let write = atStart;
      for await (const finding of findings) {
        if ('failure' in finding) this.#fail(foundBy, finding.failure);
        else await this.#take(foundBy, finding.engines, write);
        write = this.#untilWritten;
        first.resolve();
      }
    };
    const end = follow().catch((error: unknown) => {
      if (this.#stopping.signal.aborted) return;
      log(`engines by ${foundBy} are not followed any more: ${messageOf(error)}`, { level: 'error' });
      first.reject(error);
    });
    return { first: first.promise, end };
  }

  async #take(foundBy: FoundBy, found: readonly FoundEngine[], write: Options['atStart']): Promise<void> {
    const { db, discovery, log } = this.#options;
    const written = this.#written.get(foundBy) ?? null;
    const { joined, drained, unready, left } = changesOf(written ?? [], found);
    const isChange = written === null || joined.length + drained.length + unready.length + left.length > 0;
    if (isChange) {
      await this.#oneByOne(async () => {
        await write(() =>
          // The list also stands for relay workers.
          foundBy === 'list'
            ? registerReplicas(
                db,
                found.map(({ url }) => url),
              )
            : changeFound(db, foundBy, { found, ...(written === null ? { list: discovery.engines } : { left }) }),
        );
        this.#written.set(foundBy, found);
      });
      for (const url of joined) noteUntrainable(url, log);
    }
    const failed = this.#states.get(foundBy)?.failure ?? null;
    this.#states.set(foundBy, { foundBy, engines: found.length, failure: null });
    if (foundBy === 'list') return;
    if (failed !== null) log(`engines by ${foundBy} are followed again`);
    const changes = [
      ...joined.map((url) => `${url} joined`),
      ...drained.map((url) => `${url} drains`),
      ...unready.map((url) => `${url} is not ready or drains`),
      ...left.map((url) => `${url} left`),
      ...(isChange && found.length === 0 ? ['none is there now'] : []),
    ];
    if (changes.length > 0) log(`engines by ${foundBy}: ${changes.join(', ')}`);
  }

  #fail(foundBy: FoundBy, message: string): void {
    const before = this.#states.get(foundBy);
    if (before?.failure?.message !== message)
      this.#options.log(`${message}; the engines stay as they are`, { level: 'warning' });
    const since = before?.failure?.since ?? new Date();
    this.#states.set(foundBy, { foundBy, engines: before?.engines ?? null, failure: { message, since } });
  }

  /** Adds the engines that something else has removed: a gateway that started with other settings, or a run that named them too and has ended. */
  async #restore(): Promise<void> {
    for (const { foundBy, failure } of this.states) {
      const serving = this.#written.get(foundBy)?.filter(({ draining }) => !draining) ?? [];
      if (failure !== null) continue;
      await joinReplicas(
        this.#options.db,
        serving.map(({ url }) => url),
        foundBy,
        // It is repeated after `RESTORE_MS`.
      ).catch(() => {});
    }
  }

  /** Repeats a write until the store takes it. What was found meanwhile is read afterwards. */
  readonly #untilWritten = async (write: () => Promise<void>): Promise<void> => {
    for (let isFirst = true; ; isFirst = false) {
      try {
        return await write();
      } catch (error) {
        if (isFirst)
          this.#options.log(`the change of engines waits for the store: ${messageOf(error)}`, { level: 'warning' });
        await sleep(STORE_PAUSE_MS, this.#stopping.signal);
      }
    }
  };

  /** One write after the other, so that an engine which leaves is not restored at the same time. */
  #oneByOne(work: () => Promise<void>): Promise<void> {
    const done = this.#writing.then(work);
    this.#writing = done.catch(() => {});
    return done;
  }
}

function changesOf(before: readonly FoundEngine[], now: readonly FoundEngine[]) {
  const was = new Map(before.map(({ url, draining }) => [url, draining]));
  const is = new Set(now.map(({ url }) => url));
  return {
    joined: now.filter(({ url, draining }) => !draining && was.get(url) !== false).map(({ url }) => url),
    drained: now.filter(({ url, draining }) => draining && was.get(url) === false).map(({ url }) => url),
    unready: now.filter(({ url, draining }) => draining && !was.has(url)).map(({ url }) => url),
    left: before.filter(({ url }) => !is.has(url)).map(({ url }) => url),
  };
}

function noteUntrainable(url: string, log: Log): void {
  if (url === RELAY || isRelayed(url)) return;
  const { whyUntrainable = null } = engineIn(url) ?? {};
  if (whyUntrainable !== null)
    log(`engine ${url}: its calls are answered and recorded, and none can be trained on, because ${whyUntrainable}`, {
      level: 'warning',
    });
}
