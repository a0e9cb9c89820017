import { preference } from './preference.ts';

const MARGIN = 8;
const FACTOR = 1.5;
/** Trials that escaped. */
const REMEMBERED = 10_000;

type Place = { url: string };

/**
 * Which replica a trial's call goes to. Its own one by rendezvous hashing, where its prefix is cached; but a hash alone holds
 * trials to an engine that thrashes its KV cache while others idle (prime-rl #3255). So when that one is loaded, the trial
 * escapes to the least loaded, and stays there until that one is loaded or gone.
 *
 * Loaded: at least MARGIN calls in flight above the least loaded one, and at least FACTOR times as many. That is the test of
 * vllm-router's `cache_aware` (there 64 and 1.5), but asked of the trial's own replica alone: asked of the whole pool, one hot
 * replica makes every trial lose its prefix (vllm-router #238), and asked so, a small margin is safe (verl #7435 found 2 good).
 * 64 would never be reached by a run of 64 trials.
 *
 * `load` is what this process has in flight; of several gateways each balances its own share.
 */
export class Placement {
  readonly #load: (url: string) => number;
  readonly #escaped = new Map<string, string>();
  readonly #escapes = new Map<string, number>();

  constructor(load: (url: string) => number) {
    this.#load = load;
  }

  /** `leaves`: the loaded replica that the trial escapes from, once `to` has proved fit. Null when there is no replica. */
  choose<T extends Place>(trialId: string, replicas: readonly T[]): { to: T; leaves: T | null } | null {
    const order = preference(trialId, replicas);
    const own = this.#refuge(trialId, order) ?? order[0];
    if (!own) return null;
    const load = (replica: T) => this.#load(replica.url);
    // Of equals the one that the trial prefers: the first of all would draw every trial that escapes.
    const least = order.reduce((best, replica) => (load(replica) < load(best) ? replica : best));
    const isLoaded = load(own) >= load(least) + MARGIN && load(own) >= load(least) * FACTOR;
    return isLoaded ? { to: least, leaves: own } : { to: own, leaves: null };
  }

  escape(trialId: string, from: Place, to: Place): void {
    this.#escapes.set(from.url, this.escapes(from.url) + 1);
    this.#remember(trialId, to.url);
  }

  /** How many calls made their trial leave this replica. */
  escapes(url: string): number {
    return this.#escapes.get(url) ?? 0;
  }

  #refuge<T extends Place>(trialId: string, replicas: readonly T[]): T | undefined {
    const url = this.#escaped.get(trialId);
    if (url === undefined) return undefined;
    const refuge = replicas.find((replica) => replica.url === url);
    if (refuge) this.#remember(trialId, url);
    else this.#escaped.delete(trialId);
    return refuge;
  }

  /** What was not used for longest is forgotten first. */
  #remember(trialId: string, url: string): void {
    this.#escaped.delete(trialId);
    this.#escaped.set(trialId, url);
    const [oldest] = this.#escaped.keys();
    if (this.#escaped.size > REMEMBERED && oldest !== undefined) this.#escaped.delete(oldest);
  }
}
