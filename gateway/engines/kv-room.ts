/** A trial keeps its room for this long after its last call, because its agent will most likely go on. */
const KEPT_MS = 30_000;
/** A trial that has held room for this long gives it up if others wait. Their prefixes are computed again, which costs little in this time. */
const TERM_MS = 300_000;
/** Below this share in use nothing waits, because trials of few calls leave much behind that nobody will ask for again. */
const CALM = 0.5;
/** Other gateways' trials keep about as much between their calls as their calls have in use. The engine reports only the tokens in use. */
const OTHERS_KEEP = 2;
/** A report is ignored at this age. */
const REPORT_MS = 5_000;

/** A trial that has room. `kept` are its tokens between two calls. */
type Holder = { trialId: string; kept: number; calls: number; since: number; idleSince: number };

/**
 * The KV cache of one replica, as the tokens of the trials that use it. If the trials that take turns there had more tokens than fit, each
 * would evict the others' prefixes before they come back, and every call would compute its whole prompt again (prime-rl #3255). So a trial
 * gets room before its first call, keeps it between its calls, and those that came last give theirs up when the others have grown.
 */
export class KvRoom {
  readonly #now: () => number;
  /** The size of the KV cache in tokens. It is null while the engine has not reported it, and then every call has room. */
  #capacity: number | null = null;
  #others = 0;
  #reportedAt = -Infinity;
  /** The trials that have room, in the order in which they got it. */
  readonly #holders = new Map<string, Holder>();
  /** The holders without a call, in the order in which their last call ended. */
  readonly #idle = new Map<string, Holder>();
  #active = 0;
  #kept = 0;
  #calls = 0;
  #expiredAt = -Infinity;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** Notes the capacity of the engine, and how much of it its calls have in use, in tokens. */
  report(capacity: number, used: number): void {
    this.#capacity = capacity;
    this.#others = Math.max(used - this.#active, 0);
    this.#reportedAt = this.#now();
  }

  /**
   * True when a call of the trial with this many tokens has room. An engine without calls has room for any. `contended` is true when other
   * calls wait for room.
   */
  has(trialId: string, tokens: number, contended: boolean): boolean {
    const others = this.#now() - this.#reportedAt < REPORT_MS ? this.#others : 0;
    const capacity = this.#capacity;
    if (capacity === null || (this.#calls === 0 && others === 0)) return true;
    if (this.#active + others + tokens <= capacity * CALM) return true;
    this.#expire();
    const left = capacity - this.#active - this.#kept - others * OTHERS_KEEP;
    const holder = this.#idle.get(trialId);
    if (!holder) return tokens <= left;
    if (contended && this.#now() - holder.since > TERM_MS) this.#drop(holder);
    else this.#makeRoom(holder, tokens - holder.kept - left);
    return this.#idle.has(trialId);
  }

  /** The number of trials that it remembers. */
  get size(): number {
    return this.#holders.size;
  }

  /** True when the trial has room here, with a call or between two. */
  isHeldBy(trialId: string): boolean {
    this.#expire();
    return this.#holders.has(trialId);
  }

  /** Notes that a call begins. Returns a function that notes its end, once, with the tokens of its prompt and reply if they are known. */
  enter(trialId: string, tokens: number): (ended?: number) => void {
    const now = this.#now();
    const holder = this.#holders.get(trialId) ?? { trialId, kept: 0, calls: 0, since: now, idleSince: now };
    this.#holders.set(trialId, holder);
    if (this.#idle.delete(trialId)) this.#kept -= holder.kept;
    this.#active += tokens;
    holder.calls += 1;
    this.#calls += 1;
    let isOpen = true;
    return (ended = tokens) => {
      if (!isOpen) return;
      isOpen = false;
      this.#active -= tokens;
      this.#calls -= 1;
      holder.calls -= 1;
      holder.kept = Math.max(holder.kept, ended);
      if (holder.calls > 0) return;
      holder.idleSince = this.#now();
      this.#idle.set(trialId, holder);
      this.#kept += holder.kept;
      // While there is room for all, nothing else removes trials that have ended.
      if (holder.idleSince - this.#expiredAt >= KEPT_MS) this.#expire();
    };
  }

  /** Notes that the trial uses this replica no more. */
  leave(trialId: string): void {
    const holder = this.#idle.get(trialId);
    if (holder) this.#drop(holder);
  }

  /** Takes `missing` tokens from the trials that came last and have no call. `asking` is one of them. */
  #makeRoom(asking: Holder, missing: number): void {
    let left = missing;
    if (left <= 0) return;
    for (const holder of [...this.#holders.values()].toReversed()) {
      if (left <= 0) return;
      if (holder.calls > 0) continue;
      left -= holder.kept;
      this.#drop(holder);
      if (holder === asking) return;
    }
  }

  #expire(): void {
    const now = (this.#expiredAt = this.#now());
    for (const holder of this.#idle.values()) {
      if (now - holder.idleSince < KEPT_MS) return;
      this.#drop(holder);
    }
  }

  #drop(holder: Holder): void {
    this.#holders.delete(holder.trialId);
    this.#idle.delete(holder.trialId);
    this.#kept -= holder.kept;
  }
}
