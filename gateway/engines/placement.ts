import { RecentMap } from '../../core/recent-map.ts';
import type { KvRoom } from './kv-room.ts';
import { preference } from './preference.ts';

const MARGIN = 4;
const FACTOR = 1.5;
/** The largest number of trials whose replica is remembered: at least the half of it that called last. */
const REMEMBERED = 10_000;

type HasUrl = { url: string };

/** The conditions that a call sets for its replica. */
export type Need = {
  /** The tokens that it will have in the KV cache. They are null for a question, which needs no room and changes no placement. */
  tokens: number | null;
  /** True when other calls wait for room. */
  contended: boolean;
  /** True when it waits behind others, and may only use room that its trial has already. */
  behind: boolean;
};

type View = {
  /** Returns how many calls a replica has, running and waiting, as far as this process knows. */
  load: (url: string) => number;
  room: (url: string) => KvRoom;
};

/** The replica that a call goes to, and the one that its trial leaves for it, if any. It is `full` when no replica has room. */
export type Choice<T> = { to: T; from: T | null } | 'full';

/**
 * Chooses the replica for a trial's call. A trial begins at the least loaded replica, by rendezvous hashing among equals, and stays where
 * its prefix is cached. A hash alone would hold trials to an engine that thrashes its KV cache while others idle (prime-rl #3255). So when
 * its replica is loaded, the trial escapes to the least loaded one that has room, and stays there. A replica is loaded when it has at least
 * MARGIN more calls than the least loaded one, and at least FACTOR times as many. This is the test of vllm-router's `cache_aware` (there 64
 * and 1.5), but only for the trial's own replica: applied to the whole pool, one hot replica makes every trial lose its prefix (vllm-router
 * #238), and for one replica a small margin is safe (verl #7435 found 2 good). A run of 64 trials would never reach a margin of 64.
 * `bench/placement.ts` measures it: with a margin of 8, trials stay with an engine that is slow.
 */
export class Placement {
  readonly #view: View;
  readonly #homes = new RecentMap<string, string>(REMEMBERED);
  readonly #escapes = new Map<string, number>();

  constructor(view: View) {
    this.#view = view;
  }

  /** Returns null without a replica. The choice counts once `settle` confirms it. */
  choose<T extends HasUrl>(
    trialId: string,
    replicas: readonly T[],
    { tokens, contended, behind }: Need,
  ): Choice<T> | null {
    const order = preference(trialId, replicas);
    const [first] = order;
    if (!first) return null;
    const { load, room } = this.#view;
    const known = this.#homes.get(trialId);
    // A replica that left may return, and the trial with it.
    const home = known === undefined ? null : (order.find(({ url }) => url === known) ?? first);
    if (tokens === null) return { to: home ?? first, from: null };
    const hasRoom = ({ url }: T) => room(url).has(trialId, tokens, contended);
    // Ties go to the replica that the trial prefers, because the first of all would draw every trial.
    const least = (among: readonly T[]) =>
      among.reduce<T | null>((best, each) => (best && load(best.url) <= load(each.url) ? best : each), null);
    if (home) {
      const own = load(home.url);
      const refuge = least(order.filter((each) => isLoaded(own, load(each.url)) && hasRoom(each)));
      if (refuge) return { to: refuge, from: home };
      if ((!behind || room(home.url).isHeldBy(trialId)) && hasRoom(home)) return { to: home, from: null };
    }
    const to = behind ? null : least(order.filter(hasRoom));
    return to ? { to, from: home === to ? null : home } : 'full';
  }

  /** Notes that the trial's call went to `to`. */
  settle(trialId: string, { to, from }: { to: HasUrl; from: HasUrl | null }): void {
    if (from) {
      this.#escapes.set(from.url, this.escapes(from.url) + 1);
      this.#view.room(from.url).leave(trialId);
    }
    if (from || this.#homes.get(trialId) === undefined) this.#homes.set(trialId, to.url);
  }

  /** Returns how many calls made their trial leave this replica. */
  escapes(url: string): number {
    return this.#escapes.get(url) ?? 0;
  }

  /** Forgets a replica that has left. */
  forget(url: string): void {
    this.#escapes.delete(url);
  }
}

const isLoaded = (own: number, other: number): boolean => own >= other + MARGIN && own >= other * FACTOR;
