import { Counters } from '../counters.ts';
import { ReplicaMemory } from '../engines/replica.ts';
import { ConversationMemory } from '../token-in/conversations.ts';

/** How long an engine's models and traits are believed: `fetch` does not show that another process answers. */
const KNOWN_MS = 30_000;
const CONVERSATION_BYTES = 32 * 2 ** 20;

/** What the requests of one isolate share: values alone, no connection and no promise. It may be gone at any time. */
export class Isolate {
  readonly counters = new Counters();
  readonly conversations = new ConversationMemory(CONVERSATION_BYTES);
  /** Engines that were registered as the deployment's pool. */
  registered = '';
  readonly #replicas = new Map<string, { at: number; memory: ReplicaMemory }>();

  replica(url: string): ReplicaMemory {
    const known = this.#replicas.get(url) ?? { at: Date.now(), memory: new ReplicaMemory() };
    if (Date.now() - known.at > KNOWN_MS) {
      known.memory.forget();
      known.at = Date.now();
    }
    this.#replicas.set(url, known);
    return known.memory;
  }
}
