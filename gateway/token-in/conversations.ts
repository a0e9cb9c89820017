import { itemKey, outlineOf, repliesOf, type Outline } from '../../store/calls/outline.ts';
import type { Base } from '../../store/calls/shorten.ts';
import { concat, startsWith } from '../../store/ids.ts';
import type { Call as CallRow } from '../../store/queries/read-calls.ts';
import type { CallRecord } from '../../store/queries/record-calls.ts';
import { choicesOf } from '../../store/calls/choices.ts';
import { isObject, type JsonObject } from '../json.ts';
import { conversationOf, isReply, keyOf, type ChatConversation, type Conversation } from './messages.ts';

/** A recorded call, where another may go on. `stopped`: its text completion, the stop string that was cut off, and how many tokens they have. */
export type Turn = Base & { stopped: { text: string; by: string; tokens: number } | null };
export type Past = {
  /** The last turn that the request goes on from, and how many of its messages that covers. */
  parent: (Turn & { messages: number }) | null;
  /** Other turns whose prompt and reply say the same: where a stop string cut them, their ids may go on differently after it. */
  twins: Turn[];
  /** Whether a reply follows that turn which is not the recorded one: the history was edited there. */
  isEdited: boolean;
  isFirst: boolean;
  /** The recorded call that the request has most in common with, and the contents that are stored already (rule 9). */
  base: Base | null;
  known: ReadonlySet<string>;
};

type At = { trialId: string; attempt: number };
/** `last`: the latest turn that goes through here. */
type Node = { turn: Turn | null; last: Turn | null; next: Map<string, Node> };
type Trial = { roots: Map<string, Node>; prompts: { turn: Turn; said: boolean }[]; calls: Set<string>; known: Set<string>; keys: Map<string, string>; last: Turn | null; bytes: number };
type Said = { turn: Turn; conversation: Conversation | null; outline: Outline; reply: JsonObject | undefined; isWhole: boolean };
/** `memory`: what others with the same store have read or written. Values alone. */
type Options = { readCalls: (from: At) => Promise<CallRow[]>; memory?: ConversationMemory };

export class ConversationMemory {
  readonly trials = new Map<string, Trial>();
  readonly maxBytes: number;
  bytes = 0;

  constructor(maxBytes = 128 * 2 ** 20) {
    this.maxBytes = maxBytes;
  }
}

const NOTHING: ReadonlySet<string> = new Set();

/** What each open trial has said so far: a memory of the store, which is read where it knows more. */
export class Conversations {
  readonly #options: Options;
  readonly #memory: ConversationMemory;
  /** Commits of this process that are not in the memory yet, by trial. */
  readonly #committing = new Map<string, Set<Promise<unknown>>>();
  /** Reads under way, at most one for a trial. */
  readonly #reading = new Map<string, Promise<void>>();

  constructor(options: Options) {
    this.#options = options;
    this.#memory = options.memory ?? new ConversationMemory();
  }

  /** `recorded`: how many rows the store has of the attempt; this process may not have written all of them. */
  async find(at: At & { recorded: number }, conversation: Conversation | null): Promise<Past> {
    const isFirst = at.recorded === 0;
    if (isFirst) return { parent: null, twins: [], isEdited: false, isFirst, base: null, known: NOTHING };
    await this.#catchUp(at);
    const trial = this.#use(at);
    const found = conversation === null ? NOWHERE : 'keys' in conversation ? findTurn(trial, conversation) : findPrompt(trial, conversation.prompt);
    return { ...found, isFirst, base: found.parent ?? found.nearest ?? trial.last, known: trial.known };
  }

  /** Announces a commit of this process; `recording` settles when the call is in the memory, or will not be. */
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

  /**
   * Makes the memory hold all that the store counted when the request was admitted. The store counts a commit of this process
   * some moments before this process knows of it: that is waited for. What is missing then is of another process, and is read.
   */
  async #catchUp(at: At & { recorded: number }): Promise<void> {
    const key = keyOfTrial(at);
    const isBehind = () => this.#use(at).calls.size < at.recorded;
    const own = new Set([...(this.#committing.get(key) ?? [])].map((recording) => {
      const settled: Promise<unknown> = recording.then(() => own.delete(settled), () => own.delete(settled));
      return settled;
    }));
    while (isBehind() && own.size > 0) await Promise.race(own);
    // A read that began before may lack what is needed; one that begins now has it, and serves all that wait.
    if (isBehind()) await this.#reading.get(key)?.catch(() => {});
    if (isBehind()) await (this.#reading.get(key) ?? this.#read(at, key));
  }

  #read(at: At, key: string): Promise<void> {
    const reading = this.#options.readCalls(at).then((rows) => rows.forEach((row) => this.#addRow(at, row)));
    this.#reading.set(key, reading);
    const forget = () => void this.#reading.delete(key);
    reading.then(forget, forget);
    return reading;
  }

  /** A call that was committed, however it ended. */
  add(conversation: Conversation | null, { choices, request: outline, response, promptTokenIds, ...at }: CallRecord): void {
    const replies = choicesOf(response ?? {});
    for (const [i, { id, completionTokenIds }] of choices.entries()) {
      const said = { outline, conversation, reply: replies[i], isWhole: at.status === 'completed' };
      this.#add(at, said, id, promptTokenIds, completionTokenIds);
    }
  }

  #addRow(at: At, { id, status, request, response, promptTokenIds, completionTokenIds }: CallRow): void {
    if (this.#use(at).calls.has(id)) return;
    const [reply] = choicesOf(response ?? {});
    const said = { outline: outlineOf(request), conversation: conversationOf(request), reply, isWhole: status === 'completed' };
    this.#add(at, said, id, promptTokenIds, completionTokenIds);
  }

  #add(at: At, said: Omit<Said, 'turn'>, callId: string, prompt: Int32Array | null | undefined, completion: Int32Array | null): void {
    const trial = this.#use(at);
    if (trial.calls.has(callId)) return;
    trial.calls.add(callId);
    const { outline, reply } = said;
    const lists = Object.fromEntries(Object.entries(outline.lists).map(([name, items]) => [name, items.map((item) => intern(trial, itemKey(item)))]));
    const text = typeof reply?.text === 'string' ? reply.text : '';
    const stopped = typeof reply?.stop_reason === 'string' && typeof reply.text === 'string' && completion ? { text, by: reply.stop_reason, tokens: completion.length } : null;
    const turn = { callId, stopped, tokenIds: concat(prompt ?? [], (prompt && completion) ?? []), lists, text: (outline.prompt ?? '') + text };
    this.#grow(trial, 200 + 4 * turn.tokenIds.length + 2 * turn.text.length + 8 * Object.values(lists).flat().length);
    for (const { digest } of [outline.fields, ...Object.values(outline.lists).flat(), ...(reply ? repliesOf({ choices: [reply] }) : [])]) {
      if (!trial.known.has(digest)) this.#grow(trial, 300);
      trial.known.add(digest);
    }
    trial.last = turn;
    const { conversation } = said;
    if (!said.isWhole || !prompt || !completion || !conversation) return;
    if ('keys' in conversation) this.#remember(trial, conversation, turn, reply?.message);
    else trial.prompts.push({ turn, said: text !== '' });
  }

  #remember(trial: Trial, conversation: ChatConversation, turn: Turn, message: unknown): void {
    const reply = isObject(message) ? keyOf(message) : null;
    if (reply === null) return;
    const child = (nodes: Map<string, Node>, key: string): Node => {
      const node = nodes.get(key) ?? { turn: null, last: null, next: new Map() };
      if (!nodes.has(key)) this.#grow(trial, 2 * key.length + 100);
      nodes.set(key, node);
      node.last = turn;
      return node;
    };
    let node = child(trial.roots, conversation.context);
    const before: Turn[] = [];
    for (const key of conversation.keys) {
      node = child(node.next, key);
      if (node.turn) before.unshift(node.turn);
    }
    const [parent] = before;
    // A turn that goes on from others holds their ids too: one array for all, and what they shared before is let go.
    if (parent && startsWith(turn.tokenIds, parent.tokenIds)) {
      const old = parent.tokenIds.buffer;
      this.#grow(trial, -old.byteLength);
      for (const each of before) if (each.tokenIds.buffer === old) each.tokenIds = turn.tokenIds.subarray(0, each.tokenIds.length);
    }
    // The same reply to the same messages, sampled twice: the ids of the first one stand.
    child(node.next, reply).turn ??= turn;
  }

  #use(at: At): Trial {
    const key = keyOfTrial(at);
    const { trials } = this.#memory;
    const trial = trials.get(key) ?? { roots: new Map(), prompts: [], calls: new Set(), known: new Set(), keys: new Map(), last: null, bytes: 0 };
    trials.delete(key);
    trials.set(key, trial);
    return trial;
  }

  /** What was not used for longest goes first: the store has it. */
  #grow(trial: Trial, bytes: number): void {
    const memory = this.#memory;
    trial.bytes += bytes;
    memory.bytes += bytes;
    for (const [key, oldest] of memory.trials) {
      if (memory.bytes <= memory.maxBytes || oldest === trial) return;
      memory.trials.delete(key);
      memory.bytes -= oldest.bytes;
    }
  }
}

const keyOfTrial = ({ trialId, attempt }: At): string => `${trialId} ${attempt}`;

/** The same text for the same item: each turn names all of its items. */
function intern({ keys }: Trial, key: string): string {
  const known = keys.get(key) ?? key;
  keys.set(known, known);
  return known;
}

type Found = Pick<Past, 'parent' | 'twins' | 'isEdited'> & { nearest: Turn | null };
const NOWHERE: Found = { parent: null, twins: [], isEdited: false, nearest: null };

function findTurn({ roots }: Trial, { context, keys }: ChatConversation): Found {
  let node = roots.get(context);
  let nearest = node?.last ?? null;
  let parent: Past['parent'] = null;
  // The whole of a request is never a turn's end: its last message asks for one.
  for (const [i, key] of keys.slice(0, -1).entries()) {
    node = node?.next.get(key);
    if (!node) break;
    nearest = node.last;
    if (node.turn) parent = { ...node.turn, messages: i + 1 };
  }
  return { parent, twins: [], nearest, isEdited: parent !== null && keys.slice(parent.messages).some(isReply) };
}

const MOST_TWINS = 8;

/** A text completion goes on from the longest prompt and reply that it begins with. The same prompt again, after an empty reply, asks anew. */
function findPrompt({ prompts }: Trial, prompt: string | readonly number[]): Found {
  const fits = prompts.filter(({ turn: { text, tokenIds }, said }) =>
    typeof prompt === 'string' ? prompt.startsWith(text) && (said || prompt !== text) : startsWith(prompt, tokenIds),
  );
  const parent = fits.reduce<Turn | null>((best, { turn }) => (best && best.tokenIds.length >= turn.tokenIds.length ? best : turn), null);
  const twins: Turn[] = [];
  for (const { turn } of fits) {
    const isNew = parent && turn.text === parent.text && ![parent, ...twins].some(({ tokenIds: ids }) => ids.length === turn.tokenIds.length && startsWith(ids, turn.tokenIds));
    if (isNew && twins.length < MOST_TWINS) twins.push(turn);
  }
  return { parent: parent && { ...parent, messages: 0 }, twins, isEdited: false, nearest: null };
}
