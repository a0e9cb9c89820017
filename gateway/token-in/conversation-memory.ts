import type { Base } from '../../store/calls/shorten.ts';
import type { PrefixIndex } from './prefix-index.ts';

/** A list's items by their keys. Turns that go on from one another share the array, each with a length of its own. */
export type SharedList = { items: string[]; length: number };

/** A recorded call. */
export type Remembered = {
  callId: string;
  lists: Record<string, SharedList>;
  /** Where a text completion was cut: the stop string, and how long the reply is. */
  stopped: { by: string; characters: number; tokens: number } | null;
  /** Its ids and text, while they are held; the store has them. */
  held: Pick<Base, 'tokenIds' | 'text'> | null;
  heldBytes: number;
  /** The turn before it, when that one's ids are a view of this one's. */
  sharing: Remembered | null;
};

/** A place in the conversations of a trial. */
export type Node = { id: number; turn: Remembered | null; through: Remembered };

/** What a message or the fields of a request mean for a conversation, by the digest of their content. */
export type Meaning = { key: string | null; fields: FieldsMeaning | null };
/** `context`: of the template's fields that say something. `continues`: whether its messages can be continued by ids. */
export type FieldsMeaning = { context: Record<string, string>; continues: boolean; hasPromptIds: boolean };

/** A text completion. `said`: its reply is not empty. `length`: of its prompt and reply. */
export type Prompted = { turn: Remembered; said: boolean; length: number };

/** One attempt. Texts are here as digests alone. */
export type Trial = {
  key: string;
  turns: Map<string, Remembered>;
  nodes: Map<string, Node>;
  contents: Map<string, Meaning>;
  byText: PrefixIndex<Prompted>;
  byIds: PrefixIndex<Prompted>;
  /** Text completions that were not put into these yet. */
  unindexed: Omit<Prompted, 'length'>[];
  last: Remembered | null;
  /** Up to which row the store was read, and the calls of this process that it had not read then. */
  readTo: number;
  unread: Set<string>;
  bytes: number;
  holding: Set<Remembered>;
  heldBytes: number;
  isForgotten: boolean;
};

/** What a memory holds and did since its process started. */
export class ConversationCounts {
  bytes = 0;
  /** Reads of calls that other processes recorded, or that were forgotten; and of one call's ids and text, which had been let go. */
  readsOfTrials = 0;
  readsOfTurns = 0;
  /** Trials whose ids and texts were let go, and trials that were forgotten. */
  released = 0;
  forgotten = 0;
}

/**
 * Values alone, which the requests of a process share. What was not used for longest goes first: ids and texts, of which one call's
 * can be read back; then whole trials.
 */
export class ConversationMemory {
  readonly maxBytes: number;
  readonly #trials = new Map<string, Trial>();
  readonly #holding = new Map<string, Trial>();
  readonly counts: ConversationCounts;

  constructor(maxBytes = 128 * 2 ** 20, counts = new ConversationCounts()) {
    this.maxBytes = maxBytes;
    this.counts = counts;
  }

  /** A trial of which nothing is known is empty. */
  use(key: string, open: () => Trial): Trial {
    const trial = this.#trials.get(key) ?? open();
    this.#trials.delete(key);
    this.#trials.set(key, trial);
    if (this.#holding.delete(key)) this.#holding.set(key, trial);
    return trial;
  }

  grow(trial: Trial, bytes: number): void {
    if (trial.isForgotten) return;
    trial.bytes += bytes;
    this.counts.bytes += bytes;
    this.#shrink(trial);
  }

  hold(trial: Trial, turn: Remembered, held: NonNullable<Remembered['held']>): void {
    turn.held = held;
    if (trial.isForgotten) return;
    this.#countHeld(trial, turn, 4 * held.tokenIds.length + 2 * held.text.length + 100);
    trial.holding.add(turn);
    this.#holding.set(trial.key, trial);
    this.#shrink(trial);
  }

  /** `turn` begins with all of `before`, whose ids become a view of its own. What had been a view of those is let go. */
  share(trial: Trial, before: Remembered, turn: Remembered): void {
    if (!before.held || !turn.held) return;
    if (before.sharing) this.#release(trial, before.sharing);
    before.sharing = null;
    before.held = { ...before.held, tokenIds: turn.held.tokenIds.subarray(0, before.held.tokenIds.length) };
    this.#countHeld(trial, before, 100);
    turn.sharing = before;
  }

  #countHeld(trial: Trial, turn: Remembered, bytes: number): void {
    if (trial.isForgotten) return;
    trial.heldBytes += bytes - turn.heldBytes;
    this.counts.bytes += bytes - turn.heldBytes;
    turn.heldBytes = bytes;
  }

  #release(trial: Trial, turn: Remembered): void {
    this.#countHeld(trial, turn, 0);
    trial.holding.delete(turn);
    turn.held = null;
    turn.sharing = null;
  }

  #shrink(current: Trial): void {
    while (this.counts.bytes > this.maxBytes) {
      const releasing = oldestBut(current, this.#holding);
      if (releasing) {
        for (const turn of releasing.holding) this.#release(releasing, turn);
        this.#holding.delete(releasing.key);
        this.counts.released += 1;
        continue;
      }
      const forgetting = oldestBut(current, this.#trials);
      if (!forgetting) return;
      this.#trials.delete(forgetting.key);
      this.counts.bytes -= forgetting.bytes;
      forgetting.isForgotten = true;
      this.counts.forgotten += 1;
    }
  }
}

function oldestBut(current: Trial, trials: ReadonlyMap<string, Trial>): Trial | null {
  for (const trial of trials.values()) if (trial !== current) return trial;
  return null;
}
