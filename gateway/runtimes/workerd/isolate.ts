import { Counters } from '../../calls/counters.ts';
import { PoolMemory } from '../../engines/pool.ts';
import type { ReplicaMemory } from '../../engines/replica.ts';
import { InFlight } from '../../engines/in-flight.ts';
import { OpenBodies } from '../../http/bodies/open-bodies.ts';
import { ConversationMemory } from '../../conversations/conversation-memory.ts';

/** How long an engine's answers about itself are trusted, because `fetch` does not show when another process answers. */
const KNOWN_MS = 30_000;

/** Values that the requests of one isolate share. Connections and promises cannot be shared. An isolate may end at any time. */
export class Isolate {
  readonly counters = new Counters();
  readonly openCalls = new InFlight();
  readonly openBodies = new OpenBodies();
  /** True once its database was seen to be uncached. */
  isUncached = false;
  /** True once the secret was checked against the database's. */
  isSecretKnown = false;
  readonly pool = new AgingPoolMemory();
  #conversations: ConversationMemory | undefined;

  /** Returns the isolate's memory of conversations. The first request makes it, because the limit is a setting. */
  conversations(maxBytes: number): ConversationMemory {
    return (this.#conversations ??= new ConversationMemory(maxBytes, this.counters.conversations));
  }
}

class AgingPoolMemory extends PoolMemory {
  readonly #since = new Map<string, number>();

  override replica(url: string): ReplicaMemory {
    const known = super.replica(url);
    const since = this.#since.get(url);
    if (since !== undefined && Date.now() - since < KNOWN_MS) return known;
    known.forget();
    this.#since.set(url, Date.now());
    return known;
  }
}
