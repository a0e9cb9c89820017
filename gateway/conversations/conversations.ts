import { CALLS_NOT_SHOWN } from '../../store/calls/calls-not-shown.ts';
import { DIGEST_LENGTH, contentOf, type Content } from '../../store/calls/content.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { itemKey } from '../../store/calls/outline.ts';
import { parseStored } from '../../store/calls/restore.ts';
import {
  shortRequest,
  type Base,
  type KnownContents,
  type ShortRequest,
  type StoredContent,
} from '../../store/calls/shorten.ts';
import { concat, sameIds, sharedLength, startsWith } from '../../core/token-ids.ts';
import type { After, NewCall } from '../../store/queries/read-new-calls.ts';
import type { KnownTurn, ReadTurn } from '../../store/queries/read-turn.ts';
import type { CallRecord } from '../../store/queries/record-calls.ts';
import { isObject, type JsonObject } from '../json.ts';
import {
  ConversationMemory,
  type Node,
  type TextCompletion,
  type RememberedTurn,
  type SharedList,
  type RememberedAttempt,
  type UnindexedTurns,
} from './conversation-memory.ts';
import {
  isReply,
  keyOf,
  thinks,
  meaningOfFields,
  storedContext,
  type ChatConversation,
  type Conversation,
} from './messages.ts';
import { ofIds, ofText, PrefixIndex, RollingHash } from './prefix-index.ts';

/** A recorded call that another may continue. `stopped` has its text completion, the stop string that was cut off, and their number of tokens. */
export type RecordedTurn = Base & {
  stopped: { text: string; by: string; tokens: number } | null;
  /** True when it sampled tool calls that its agent was not shown. */
  isShownInPart: boolean;
};
export type ConversationState = {
  /** The last turn that the request continues, and how many of its messages that turn covers. */
  parent: (RecordedTurn & { messages: number }) | null;
  /** Other turns with the same prompt and reply. If a stop string cut them, their ids may differ after it. */
  ambiguousParents: RecordedTurn[];
  /** True when the history has another reply after that turn than the recorded one: it was edited there. */
  isEdited: boolean;
  isFirst: boolean;
  /** True when a recorded reply of the attempt has thinking apart from its text. */
  hasThinking: boolean;
  /** The recorded call that shares most content with the request, and the contents that are stored already (invariant 9). */
  base: Base | null;
  known: KnownContents;
};

type At = { trialId: string; attempt: number };
/** `memory` has what earlier requests on the same store read or wrote. It holds values only. */
type Options = {
  readNew: (after: After) => Promise<NewCall[]>;
  readTurn: (callId: string, known: KnownTurn | null) => Promise<ReadTurn | undefined>;
  memory?: ConversationMemory;
};
/** The content of a call by digests. `conversation` is null when no call can continue it. */
type CallContent = {
  callId: string;
  base: RememberedTurn | null;
  lists: RememberedTurn['lists'];
  conversation: Conversation | null;
  reply: JsonObject | undefined;
  replyKey: string | null;
  tokens: number | null;
  isShownInPart: boolean;
};
/** The text that a completion adds to its base, and the hash of the base's text. */
type OwnText = { start: RollingHash; text: string };

const NOTHING: KnownContents = new Set<string>();

/** The conversations of each open trial. It caches the store and reads it when that has more. */
export class Conversations {
  readonly #options: Options;
  readonly memory: ConversationMemory;
  /** Commits of this process that are not in the memory yet, by trial. */
  readonly #committing = new Map<string, Set<Promise<unknown>>>();
  /** Reads under way, at most one for each trial. */
  readonly #reading = new Map<RememberedAttempt, Promise<void>>();
  /** Turns that are being read back. */
  readonly #loading = new Map<RememberedTurn, Promise<NonNullable<RememberedTurn['held']>>>();

  constructor(options: Options) {
    this.#options = options;
    this.memory = options.memory ?? new ConversationMemory();
  }

  /** `recorded` is the store's number of rows of the attempt, which this process may not have written all. */
  async find(at: At & { recorded: number }, conversation: Conversation | null): Promise<ConversationState> {
    const isFirst = at.recorded === 0;
    if (isFirst)
      return {
        parent: null,
        ambiguousParents: [],
        isEdited: false,
        isFirst,
        hasThinking: false,
        base: null,
        known: NOTHING,
      };
    const trial = this.#use(at);
    await this.#catchUp(at, trial);
    const found =
      conversation === null
        ? NOWHERE
        : 'keys' in conversation
          ? findTurn(trial, conversation)
          : await this.#findPrompt(trial, conversation.prompt);
    const parent = found.parent && { ...(await this.#load(trial, found.parent.turn)), messages: found.parent.messages };
    const nearest = parent ? null : (found.nearest ?? trial.last);
    const ambiguousParents = await Promise.all(found.ambiguousParents.map((turn) => this.#load(trial, turn)));
    return {
      parent,
      ambiguousParents,
      isEdited: found.isEdited,
      isFirst,
      hasThinking: trial.hasThinking,
      base: parent ?? (nearest && (await this.#load(trial, nearest))),
      known: trial.contents,
    };
  }

  /** Announces a commit of this process. `recording` settles when the call is in the memory, or will not be. */
  expect(at: At, recording: Promise<unknown>): void {
    const key = keyOfTrial(at);
    const own = this.#committing.get(key) ?? new Set();
    this.#committing.set(key, own.add(recording));
    const forget = () => {
      own.delete(recording);
      if (own.size === 0 && this.#committing.get(key) === own) this.#committing.delete(key);
    };
    recording.then(forget, forget);
  }

  /** Adds a committed call, however it ended. */
  add(conversation: Conversation | null, record: CallRecord): void {
    const { choices, request: outline, response, promptTokenIds: prompt, base } = record;
    const trial = this.#use(record);
    const replies = choicesOf(response ?? {});
    this.#knowFields(trial, outline.fields);
    for (const [name, items] of Object.entries(outline.lists)) {
      const known = name === 'messages' && conversation && 'keys' in conversation ? conversation.keys : [];
      for (const [i, item] of items.entries()) this.#know(trial, item, name === 'messages' ? known[i] : null);
    }
    const replyKeys = replies.map(({ message }) => this.#knowReply(trial, message));
    const keys = Object.fromEntries(Object.entries(outline.lists).map(([name, items]) => [name, items.map(itemKey)]));
    for (const [i, { id: callId, completionTokenIds: completion, untrainable }] of choices.entries()) {
      if (trial.turns.has(callId)) continue;
      // Further replies are stored relative to the row of the first one.
      const builtOn = trial.turns.get((i === 0 ? base?.callId : choices[0].id) ?? '') ?? null;
      const lists = this.#sharedLists(trial, builtOn, keys);
      const tokens = prompt && completion ? completion.length : null;
      const reply = replies[i];
      const turn = this.#add(trial, {
        callId,
        base: builtOn,
        lists,
        conversation,
        reply,
        replyKey: replyKeys[i] ?? null,
        tokens: record.status === 'completed' ? tokens : null,
        isShownInPart: untrainable === CALLS_NOT_SHOWN,
      });
      trial.unread.add(callId);
      if (outline.prompt !== null && trial.notByIds.has(turn))
        trial.notByText.set(turn, trial.notByIds.get(turn) === true);
      this.memory.hold(trial, turn, {
        tokenIds: concat(prompt ?? [], (prompt && completion) ?? []),
        text: (outline.prompt ?? '') + textOf(reply),
      });
      const parent = trial.turns.get(record.parentId ?? '');
      if (parent?.held && turn.held && startsWith(turn.held.tokenIds, parent.held.tokenIds))
        this.memory.share(trial, parent, turn);
    }
  }

  /**
   * Catches up with all calls that the store had counted when the request was admitted. The store counts this process's commits a moment
   * before this process learns of them, so it waits for those. Calls that are still missing belong to another process and are read.
   */
  async #catchUp(at: At & { recorded: number }, trial: RememberedAttempt): Promise<void> {
    const isBehind = () => trial.turns.size < at.recorded;
    if (!isBehind()) return;
    // Handles commits in the order in which they settle, with one reaction each. A race over all would cost many callers the square of
    // their number.
    for (const recording of [...(this.#committing.get(trial.key) ?? [])])
      if (isBehind()) await recording.catch(() => {});
    // A read that began earlier may lack calls. One that begins now has them and serves all waiting requests.
    if (isBehind()) await this.#reading.get(trial)?.catch(() => {});
    if (isBehind()) await (this.#reading.get(trial) ?? this.#read(at, trial));
  }

  #read({ trialId, attempt }: At, trial: RememberedAttempt): Promise<void> {
    const reading = this.#options
      .readNew({ trialId, attempt, after: trial.readTo, known: [...trial.unread] })
      .then((rows) => this.#addRows(trial, rows));
    this.memory.counts.readsOfTrials += 1;
    this.#reading.set(trial, reading);
    const forget = () => void this.#reading.delete(trial);
    reading.then(forget, forget);
    return reading;
  }

  #addRows(trial: RememberedAttempt, rows: readonly NewCall[]): void {
    const texts = new Map<RememberedTurn, OwnText>();
    for (const row of rows) this.#addRow(trial, row, texts);
  }

  /**
   * Adds a stored call to the memory. Earlier calls have added the content that its request shares with them. `texts` has the text
   * completions of the same read.
   */
  #addRow(
    trial: RememberedAttempt,
    { id: callId, seq, baseId, status, request, response, tokens, isShownInPart }: NewCall,
    texts: Map<RememberedTurn, OwnText>,
  ): void {
    trial.readTo = Math.max(trial.readTo, seq);
    trial.unread.delete(callId);
    if (trial.turns.has(callId) || !request) return;
    const short = shortRequest.parse(parseStored(request));
    const base = trial.turns.get(baseId ?? '') ?? null;
    const keys: Record<string, string[]> = {};
    for (const [name, [shared, rest]] of Object.entries(short.lists)) {
      keys[name] = [
        ...(base?.lists[name]?.items.slice(0, shared) ?? []),
        ...rest.map((item) => this.#learnStored(trial, item)),
      ];
    }
    this.#learnStored(trial, short.fields, true);
    const stored = response && parseStored(response);
    const [reply, ...others] = choicesOf(stored);
    for (const { message } of others) this.#knowReply(trial, message);
    const conversation = storedConversation(trial, short.fields, keys, short.prompt !== undefined);
    const turn = this.#add(trial, {
      callId,
      base,
      lists: this.#sharedLists(trial, base, keys),
      conversation,
      reply,
      replyKey: this.#knowReply(trial, reply?.message),
      tokens: status === 'completed' ? tokens : null,
      isShownInPart,
    });
    if (short.prompt) this.#addText(trial, turn, short.prompt, textOf(reply), texts);
  }

  /** Adds a stored text completion to the index. It is read back later only if its base's text is not at hand. */
  #addText(
    trial: RememberedAttempt,
    turn: RememberedTurn,
    [shared, rest]: NonNullable<ShortRequest['prompt']>,
    reply: string,
    texts: Map<RememberedTurn, OwnText>,
  ): void {
    const start = hashAt(turn.base, shared, texts);
    const hasReply = trial.notByIds.get(turn);
    if (start) {
      const text = rest + reply;
      texts.set(turn, { start, text });
      turn.textHash = start.with(ofText(text));
      this.memory.grow(trial, 100);
      if (hasReply !== undefined) this.#indexText(trial, turn, turn.textHash, hasReply);
    } else if (hasReply !== undefined) trial.notByText.set(turn, hasReply);
  }

  #indexText(trial: RememberedAttempt, turn: RememberedTurn, hash: RollingHash, hasReply: boolean): void {
    trial.byText.add(hash, { turn, hasReply, length: hash.length });
    this.memory.grow(trial, 150);
  }

  /** Learns an item of a stored list and returns its key. */
  #learnStored(trial: RememberedAttempt, { is, as, and }: StoredContent, areFields = false): string {
    const digest = as ?? contentOf(is).digest;
    if (as === undefined && areFields) this.#knowFields(trial, { digest, core: is });
    else if (as === undefined) this.#know(trial, { digest, core: is });
    return and ? digest + JSON.stringify(and) : digest;
  }

  /** `key` is the content's key as a message: null when it is not a message, computed when absent. */
  #know(
    trial: RememberedAttempt,
    { digest, core }: Pick<Content, 'digest' | 'core'>,
    key?: string | null,
  ): string | null {
    const known = trial.contents.get(digest);
    if (known && (known.key !== null || key === null)) return known.key;
    const found = key === undefined ? keyOf(core) : key;
    trial.contents.set(digest, { key: found, fields: known?.fields ?? null });
    this.memory.grow(trial, 160);
    return found;
  }

  #knowFields(trial: RememberedAttempt, { digest, core }: Pick<Content, 'digest' | 'core'>): void {
    const known = trial.contents.get(digest);
    if (known?.fields) return;
    trial.contents.set(digest, { key: known?.key ?? null, fields: isObject(core) ? meaningOfFields(core) : null });
    this.memory.grow(trial, 160);
  }

  #knowReply(trial: RememberedAttempt, message: unknown): string | null {
    return isObject(message) ? this.#know(trial, contentOf(message)) : null;
  }

  #add(
    trial: RememberedAttempt,
    { callId, base, lists, conversation, reply, replyKey, tokens, isShownInPart }: CallContent,
  ): RememberedTurn {
    const text = typeof reply?.text === 'string' ? reply.text : null;
    const stopped =
      typeof reply?.stop_reason === 'string' && text !== null && tokens !== null
        ? { by: reply.stop_reason, characters: text.length, tokens }
        : null;
    const turn: RememberedTurn = {
      callId,
      base,
      lists,
      isShownInPart,
      textHash: null,
      stopped,
      held: null,
      heldBytes: 0,
      sharing: null,
    };
    trial.turns.set(callId, turn);
    trial.last = turn;
    trial.hasThinking ||= thinks(reply?.message);
    this.memory.grow(trial, 320);
    if (tokens === null || !conversation) return turn;
    if ('keys' in conversation) this.#remember(trial, conversation, turn, replyKey);
    else trial.notByIds.set(turn, text !== '' && text !== null);
    return turn;
  }

  #remember(
    trial: RememberedAttempt,
    { context, keys }: ChatConversation,
    turn: RememberedTurn,
    reply: string | null,
  ): void {
    if (reply === null) return;
    let node: Node | null = null;
    for (const key of [context, ...keys, reply]) {
      const name = nameOf(node, key);
      const next: Node = trial.nodes.get(name) ?? { id: trial.nodes.size + 1, turn: null, through: turn };
      if (next.through === turn && !trial.nodes.has(name)) {
        trial.nodes.set(name, next);
        this.memory.grow(trial, 140);
      }
      node = next;
    }
    // The same messages got the same reply twice. The first one's ids are kept.
    if (node) node.turn ??= turn;
  }

  /** Returns the lists of a turn, sharing one array with the turn before. */
  #sharedLists(
    trial: RememberedAttempt,
    base: RememberedTurn | null,
    keys: Record<string, string[]>,
  ): RememberedTurn['lists'] {
    const lists: RememberedTurn['lists'] = {};
    for (const [name, items] of Object.entries(keys)) {
      const before = base?.lists[name]?.items ?? [];
      const shared = sharedLength(items, before);
      const isWithin = shared === items.length && items.length > 0;
      const list: SharedList =
        shared === before.length || isWithin
          ? { items: before, length: items.length }
          : { items: before.slice(0, shared), length: items.length };
      if (!isWithin) for (const item of items.slice(shared)) list.items.push(item);
      this.memory.grow(trial, 8 * (list.items === before ? items.length - shared : items.length));
      lists[name] = list;
    }
    return lists;
  }

  /** Finds the longest earlier prompt and reply that a text completion begins with. The same prompt again, after an empty reply, is a new start. */
  async #findPrompt(trial: RememberedAttempt, prompt: string | readonly number[]): Promise<Found> {
    if (typeof prompt === 'string') {
      await this.#index(trial, trial.notByText, (turn, { text }, hasReply) =>
        this.#indexText(trial, turn, (turn.textHash ??= new RollingHash().with(ofText(text))), hasReply),
      );
    } else {
      await this.#index(trial, trial.notByIds, (turn, { tokenIds }, hasReply) => {
        trial.byIds.add(new RollingHash().with(ofIds(tokenIds)), { turn, hasReply, length: tokenIds.length });
        this.memory.grow(trial, 150);
      });
    }
    for (const group of typeof prompt === 'string'
      ? trial.byText.find(ofText(prompt))
      : trial.byIds.find(ofIds(prompt))) {
      const fits: { turn: RememberedTurn; loaded: RecordedTurn }[] = [];
      for (const { turn, hasReply, length } of group.slice(0, 2 * MOST_AMBIGUOUS)) {
        if (typeof prompt === 'string' && !hasReply && length === prompt.length) continue;
        const loaded = await this.#load(trial, turn);
        if (typeof prompt === 'string' ? prompt.startsWith(loaded.text) : startsWith(prompt, loaded.tokenIds))
          fits.push({ turn, loaded });
      }
      const [first] = fits.toSorted((a, b) => b.loaded.tokenIds.length - a.loaded.tokenIds.length);
      if (!first) continue;
      const different = [first];
      for (const each of fits) {
        const isNew =
          each.loaded.text === first.loaded.text &&
          !different.some(({ loaded: { tokenIds } }) => sameIds(tokenIds, each.loaded.tokenIds));
        if (isNew && different.length <= MOST_AMBIGUOUS) different.push(each);
      }
      return {
        ...NOWHERE,
        parent: { turn: first.turn, messages: 0 },
        ambiguousParents: different.slice(1).map(({ turn }) => turn),
      };
    }
    return NOWHERE;
  }

  /**
   * Moves turns into the index. Each leaves the list only when it is in the index, so that a failed read loses nothing and parallel
   * requests never find half an index.
   */
  async #index(
    trial: RememberedAttempt,
    unindexed: UnindexedTurns,
    add: (turn: RememberedTurn, held: NonNullable<RememberedTurn['held']>, hasReply: boolean) => void,
  ): Promise<void> {
    for (const [turn, hasReply] of unindexed) {
      const held = turn.held ?? (await this.#readBack(trial, turn));
      if (unindexed.delete(turn)) add(turn, held, hasReply);
    }
  }

  /** Reads a turn whose ids and text are not held: only what follows the nearest held turn that it builds on. */
  #readBack(trial: RememberedAttempt, turn: RememberedTurn): Promise<NonNullable<RememberedTurn['held']>> {
    const loading = this.#loading.get(turn);
    if (loading) return loading;
    let before = turn.base;
    while (before && !before.held) before = before.base;
    const known = before?.held ? { callId: before.callId, ...before.held } : null;
    const read = this.#options.readTurn(turn.callId, known).then((found) => {
      const held = { tokenIds: found?.tokenIds ?? new Int32Array(), text: found?.text ?? '' };
      this.memory.counts.readsOfTurns += 1;
      this.memory.hold(trial, turn, held);
      if (before?.held && startsWith(held.tokenIds, before.held.tokenIds)) this.memory.share(trial, before, turn);
      return held;
    });
    this.#loading.set(turn, read);
    const forget = () => void this.#loading.delete(turn);
    read.then(forget, forget);
    return read;
  }

  /** Returns the turn with its ids and text, reading them back if they were released. */
  async #load(trial: RememberedAttempt, turn: RememberedTurn): Promise<RecordedTurn> {
    const { tokenIds, text } = turn.held ?? (await this.#readBack(trial, turn));
    this.memory.touch(trial, turn);
    const { callId, stopped, isShownInPart } = turn;
    const lists = Object.fromEntries(
      Object.entries(turn.lists).map(([name, { items, length }]) => [name, items.slice(0, length)]),
    );
    return {
      callId,
      tokenIds,
      text,
      lists,
      isShownInPart,
      stopped: stopped && {
        text: text.slice(text.length - stopped.characters),
        by: stopped.by,
        tokens: stopped.tokens,
      },
    };
  }

  #use(at: At): RememberedAttempt {
    const key = keyOfTrial(at);
    return this.memory.use(key, () => ({
      key,
      turns: new Map(),
      nodes: new Map(),
      contents: new Map(),
      byText: new PrefixIndex<TextCompletion>(),
      byIds: new PrefixIndex<TextCompletion>(),
      notByText: new Map(),
      notByIds: new Map(),
      last: null,
      hasThinking: false,
      readTo: 0,
      unread: new Set(),
      bytes: 0,
      holding: new Set(),
      heldBytes: 0,
      isForgotten: false,
    }));
  }
}

const keyOfTrial = ({ trialId, attempt }: At): string => `${trialId} ${attempt}`;

/** Returns the name of a node: the id of the node before it and the key of the message that follows. */
const nameOf = (before: Node | null, key: string): string => `${before?.id ?? ''}:${key}`;

const textOf = (reply: JsonObject | undefined): string => (typeof reply?.text === 'string' ? reply.text : '');

/** Returns the hash of a text completion's first `length` characters, or null when its text is not at hand. */
function hashAt(
  turn: RememberedTurn | null,
  length: number,
  texts: ReadonlyMap<RememberedTurn, OwnText>,
): RollingHash | null {
  if (length === 0) return new RollingHash();
  for (let at = turn; at; at = at.base) {
    if (at.textHash?.length === length) return at.textHash;
    const own = texts.get(at);
    if (own && length >= own.start.length) return own.start.with(ofText(own.text), length - own.start.length);
    if (!own) return at.held ? new RollingHash().with(ofText(at.held.text), length) : null;
  }
  return null;
}

type Found = {
  parent: { turn: RememberedTurn; messages: number } | null;
  ambiguousParents: RememberedTurn[];
  isEdited: boolean;
  nearest: RememberedTurn | null;
};
const NOWHERE: Found = { parent: null, ambiguousParents: [], isEdited: false, nearest: null };
const MOST_AMBIGUOUS = 8;

function findTurn({ nodes }: RememberedAttempt, { context, keys }: ChatConversation): Found {
  let node = nodes.get(nameOf(null, context));
  let nearest = node?.through ?? null;
  let parent: Found['parent'] = null;
  // A whole request is never the end of a turn, because its last message asks for a reply.
  for (const [i, key] of keys.slice(0, -1).entries()) {
    node = node && nodes.get(nameOf(node, key));
    if (!node) break;
    nearest = node.through;
    if (node.turn) parent = { turn: node.turn, messages: i + 1 };
  }
  return {
    parent,
    ambiguousParents: [],
    nearest,
    isEdited: parent !== null && keys.slice(parent.messages).some(isReply),
  };
}

/**
 * Builds the conversation of a stored request from the meanings of its contents. For a text completion it only notes that it is one; its
 * text is read when needed.
 */
function storedConversation(
  { contents }: RememberedAttempt,
  { is, as, and = {} }: StoredContent,
  keys: Record<string, string[]>,
  hasPrompt: boolean,
): Conversation | null {
  const fields = contents.get(as ?? contentOf(is).digest)?.fields;
  if (hasPrompt || fields?.hasPromptIds) return { prompt: '' };
  if (!fields?.continues || !keys.messages) return null;
  const digests = Object.fromEntries(
    Object.entries(keys).map(([name, items]) => [name, items.map((item) => item.slice(0, DIGEST_LENGTH))]),
  );
  const messageKeys = (digests.messages ?? []).map((digest) => contents.get(digest)?.key ?? null);
  return messageKeys.every((key) => key !== null)
    ? { context: storedContext(fields, digests, and), keys: messageKeys }
    : null;
}
