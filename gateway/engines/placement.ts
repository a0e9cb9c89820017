import { preference } from './preference.ts';

const MARGIN = 8;
const FACTOR = 1.5;
/** The number of escaped trials that are remembered. */
const REMEMBERED = 10_000;

type HasUrl = { url: string };

/**
 * Chooses the replica for a trial's call. By rendezvous hashing a trial has its own replica, where its prefix is cached. A hash alone would
 * hold trials to an engine that thrashes its KV cache while others idle (prime-rl #3255). So when its own replica is loaded, the trial
 * escapes to the least loaded one and stays there until that one is loaded or gone. A replica is loaded when it has at least MARGIN more
 * calls in flight than the least loaded one, and at least FACTOR times as many. This is the test of vllm-router's `cache_aware` (there 64
 * and 1.5), but only for the trial's own replica: applied to the whole pool, one hot replica makes every trial lose its prefix (vllm-router
 * #238), and for one replica a small margin is safe (verl #7435 found 2 good). A run of 64 trials would never reach a margin of 64. `load`
 * has this process's calls in flight; each of several gateways balances its own share.
 */
export class Placement {
  readonly #load: (url: string) => number;
  readonly #escaped = new Map<string, string>();
  readonly #escapes = new Map<string, number>();

  constructor(load: (url: string) => number) {
    this.#load = load;
  }

  /**
   * Returns where the call goes, or null without a replica. `from` is the loaded replica that the trial escapes from, once `to` has
   * proved usable.
   */
  choose<T extends HasUrl>(trialId: string, replicas: readonly T[]): { to: T; from: T | null } | null {
    const order = preference(trialId, replicas);
    const own = this.#refuge(trialId, order) ?? order[0];
    if (!own) return null;
    const load = (replica: T) => this.#load(replica.url);
    // Ties go to the replica that the trial prefers, because the first of all would draw every trial that escapes.
    const least = order.reduce((best, replica) => (load(replica) < load(best) ? replica : best));
    const isLoaded = load(own) >= load(least) + MARGIN && load(own) >= load(least) * FACTOR;
    return isLoaded ? { to: least, from: own } : { to: own, from: null };
  }

  escape(trialId: string, from: HasUrl, to: HasUrl): void {
    this.#escapes.set(from.url, this.escapes(from.url) + 1);
    this.#remember(trialId, to.url);
  }

  /** Returns how many calls made their trial leave this replica. */
  escapes(url: string): number {
    return this.#escapes.get(url) ?? 0;
  }

  #refuge<T extends HasUrl>(trialId: string, replicas: readonly T[]): T | undefined {
    const url = this.#escaped.get(trialId);
    if (url === undefined) return undefined;
    const refuge = replicas.find((replica) => replica.url === url);
    if (refuge) this.#remember(trialId, url);
    else this.#escaped.delete(trialId);
    return refuge;
  }

  /** Remembers where the trial went, and forgets the one that was not used for longest. */
  #remember(trialId: string, url: string): void {
    this.#escaped.delete(trialId);
    this.#escaped.set(trialId, url);
    const [oldest] = this.#escaped.keys();
    if (this.#escaped.size > REMEMBERED && oldest !== undefined) this.#escaped.delete(oldest);
  }
}
