import { LatestMap } from '../../core/latest-map.ts';
import type { Base } from '../../store/calls/shorten.ts';
import type { PrefixIndex, RollingHash } from './prefix-index.ts';

/** A list's items by their keys. Consecutive turns share the array, and each turn has its own length. */
export type SharedList = { items: string[]; length: number };

/** A recorded call. */
export type RememberedTurn = {
  callId: string;
  /** The turn relative to which the store holds this one. Null if there is none, or if it is not remembered. */
  base: RememberedTurn | null;
  lists: Record<string, SharedList>;
  /** True when it sampled tool calls that its agent was not shown. */
  isShownInPart: boolean;
  /** The hash of a text completion's prompt and reply, or null while it is not known. */
  textHash: RollingHash | null;
  /** How a text completion was stopped: the stop string and the length of the reply. */
  stopped: { by: string; characters: number; tokens: number } | null;
  /** The turn's ids and text while they are held in memory. The store has them too. */
  held: Pick<Base, 'tokenIds' | 'text'> | null;
  heldBytes: number;
  /** The previous turn, if its ids are a view of this turn's ids. */
  sharing: RememberedTurn | null;
};

/** A node in the tree of a trial's conversations. */
export type Node = { id: number; turn: RememberedTurn | null; through: RememberedTurn };

/** The meaning of a message, or of a request's fields, for a conversation. The key is the digest of the content. */
export type Meaning = { key: string | null; fields: FieldsMeaning | null };
/** `context` has the digests of the template's fields that are not empty. `continues` is true when its messages can be continued by ids. */
export type FieldsMeaning = { context: Record<string, string>; continues: boolean; hasPromptIds: boolean };

/** A text completion. `hasReply` is true when its reply is not empty. `length` is that of its prompt and reply. */
export type TextCompletion = { turn: RememberedTurn; hasReply: boolean; length: number };
/** Text completions that are not in an index yet. The value is true when the reply is not empty. */
export type UnindexedTurns = Map<RememberedTurn, boolean>;

/** The memory of one attempt. Texts are held only as digests. */
export type RememberedAttempt = {
  key: string;
  turns: Map<string, RememberedTurn>;
  nodes: Map<string, Node>;
  contents: Map<string, Meaning>;
  byText: PrefixIndex<TextCompletion>;
  byIds: PrefixIndex<TextCompletion>;
  notByText: UnindexedTurns;
  notByIds: UnindexedTurns;
  last: RememberedTurn | null;
  /** True when one of its replies has thinking apart from its text. */
  hasThinking: boolean;
  /** The last row that was read from the store, and calls of this process that were recorded after that read. */
  readTo: number;
  unread: Set<string>;
  bytes: number;
  holding: Set<RememberedTurn>;
  heldBytes: number;
  isForgotten: boolean;
};

/** The contents of a memory, and its work since the process started. */
export class ConversationCounts {
  bytes = 0;
  /** Reads of calls that other processes recorded or that were forgotten, and reads of one call's released ids and text. */
  readsOfTrials = 0;
  readsOfTurns = 0;
  /** How often a trial's ids and texts were released, and how many trials were forgotten. */
  released = 0;
  forgotten = 0;
}

/** One trial's share of the memory. A trial that holds more first releases its own oldest turns. */
const SHARE = 1 / 4;
/** The number of turns that a trial in use keeps, whatever their size. */
const KEPT_TURNS = 2;

/**
 * Holds only values, so that the requests of a process can share it. Removes the least recently used first: ids and texts, which can be
 * read back for one call, then whole trials.
 */
export class ConversationMemory {
  readonly maxBytes: number;
  readonly #trials = new LatestMap<string, RememberedAttempt>();
  readonly #holding = new LatestMap<string, RememberedAttempt>();
  readonly counts: ConversationCounts;

  constructor(maxBytes = 128 * 2 ** 20, counts = new ConversationCounts()) {
    this.maxBytes = maxBytes;
    this.counts = counts;
  }

  /** Returns the trial, or opens an empty one. */
  use(key: string, open: () => RememberedAttempt): RememberedAttempt {
    const known = this.#trials.get(key);
    if (known) {
      this.#holding.get(key);
      return known;
    }
    const trial = open();
    this.#trials.set(key, trial);
    return trial;
  }

  grow(trial: RememberedAttempt, bytes: number): void {
    if (trial.isForgotten) return;
    trial.bytes += bytes;
    this.counts.bytes += bytes;
    this.#shrink(trial);
  }

  hold(trial: RememberedAttempt, turn: RememberedTurn, held: NonNullable<RememberedTurn['held']>): void {
    turn.held = held;
    if (trial.isForgotten) return;
    this.#countHeld(trial, turn, 4 * held.tokenIds.length + 2 * held.text.length + 100);
    trial.holding.add(turn);
    this.#holding.set(trial.key, trial);
    this.#shrink(trial);
  }

  /** Marks the turn as the trial's last used one. */
  touch(trial: RememberedAttempt, turn: RememberedTurn): void {
    if (trial.holding.delete(turn)) trial.holding.add(turn);
  }

  /** Makes the ids of `before` a view of those of `turn`, which begins with all of `before`. Releases the previous view of `before`. */
  share(trial: RememberedAttempt, before: RememberedTurn, turn: RememberedTurn): void {
    if (!before.held || !turn.held) return;
    if (before.sharing) this.#release(trial, before.sharing);
    before.sharing = null;
    before.held = { ...before.held, tokenIds: turn.held.tokenIds.subarray(0, before.held.tokenIds.length) };
    this.#countHeld(trial, before, 2 * before.held.text.length + 100);
    turn.sharing = before;
  }

  #countHeld(trial: RememberedAttempt, turn: RememberedTurn, bytes: number): void {
    if (trial.isForgotten) return;
    trial.heldBytes += bytes - turn.heldBytes;
    this.counts.bytes += bytes - turn.heldBytes;
    turn.heldBytes = bytes;
  }

  #release(trial: RememberedAttempt, turn: RememberedTurn): void {
    const { held, sharing } = turn;
    this.#countHeld(trial, turn, 0);
    trial.holding.delete(turn);
    turn.held = null;
    turn.sharing = null;
    // A view would keep the ids in memory without counting them.
    if (held && sharing?.held?.tokenIds.buffer === held.tokenIds.buffer) this.#release(trial, sharing);
  }

  #shrink(current: RememberedAttempt): void {
    while (this.counts.bytes > this.maxBytes) {
      const isOverShare = current.heldBytes > this.maxBytes * SHARE && current.holding.size > KEPT_TURNS;
      const releasing = isOverShare ? null : oldestBut(current, this.#holding);
      if (releasing) {
        for (const turn of releasing.holding) this.#release(releasing, turn);
        this.#holding.delete(releasing.key);
        this.counts.released += 1;
        continue;
      }
      const [oldest] = current.holding;
      if (oldest && current.holding.size > KEPT_TURNS) {
        this.#release(current, oldest);
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

function oldestBut(current: RememberedAttempt, trials: LatestMap<string, RememberedAttempt>): RememberedAttempt | null {
  for (const trial of trials.values()) if (trial !== current) return trial;
  return null;
}
