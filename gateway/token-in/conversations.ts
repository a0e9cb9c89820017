import type { Call as CallRow } from '../../store/queries/read-calls.ts';
import { startsWith } from '../../store/samples/build-samples.ts';
import { parseObject } from '../json.ts';
import { onlyChoice } from '../chat/hide.ts';
import { conversationOf, isReply, keyOf, type Conversation } from './messages.ts';

/** A recorded call's prompt and completion, where another may go on. */
export type Turn = { callId: string; tokenIds: Int32Array };
export type Past = {
  /** The last turn that the request's messages go on from. */
  parent: (Turn & { messages: number }) | null;
  /** Whether a reply follows that turn which is not the recorded one: the history was edited there. */
  isEdited: boolean;
  isFirst: boolean;
};

type Node = { turn: Turn | null; next: Map<string, Node> };
type Trial = { roots: Map<string, Node>; calls: Set<string>; bytes: number; readTo: number };
type Options = { readCalls: (from: { trialId: string; attempt: number; after: number }) => Promise<CallRow[]>; maxBytes?: number };

/** What each open trial has said so far, by messages: a memory of the store, which is read where it knows more. */
export class Conversations {
  readonly #options: Options;
  readonly #trials = new Map<string, Trial>();
  #bytes = 0;

  constructor(options: Options) {
    this.#options = options;
  }

  /** `completed`: how many calls of the attempt the store has; this process may not have seen all of them. */
  async find(at: { trialId: string; attempt: number; completed: number }, conversation: Conversation | null): Promise<Past> {
    const isFirst = at.completed === 0;
    if (isFirst || !conversation) return { parent: null, isEdited: false, isFirst };
    const { calls, readTo } = this.#use(at);
    if (calls.size < at.completed) for (const row of await this.#options.readCalls({ ...at, after: readTo })) this.#addRow(at, row);
    let node = this.#use(at).roots.get(conversation.context);
    let parent: Past['parent'] = null;
    // The whole of a request is never a turn's end: its last message asks for one.
    for (const [i, key] of conversation.keys.slice(0, -1).entries()) {
      node = node?.next.get(key);
      if (node?.turn) parent = { ...node.turn, messages: i + 1 };
    }
    const rest = conversation.keys.slice(parent?.messages ?? 0);
    return { parent, isEdited: parent !== null && rest.some(isReply), isFirst };
  }

  /** A call that was committed: `message` is its reply, as the agent got it. */
  add(at: { trialId: string; attempt: number }, conversation: Conversation | null, message: unknown, turn: Turn): void {
    const trial = this.#use(at);
    if (trial.calls.has(turn.callId)) return;
    trial.calls.add(turn.callId);
    this.#grow(trial, 100);
    const reply = keyOf(message);
    if (!conversation || reply === null) return;
    let node = childOf(trial.roots, conversation.context, (bytes) => this.#grow(trial, bytes));
    for (const key of conversation.keys) {
      node = childOf(node.next, key, (bytes) => this.#grow(trial, bytes));
      if (!node.turn || sharesIds(node.turn) || !startsWith(turn.tokenIds, node.turn.tokenIds)) continue;
      // A turn that goes on from this one holds its ids too: one array for both.
      this.#grow(trial, -4 * node.turn.tokenIds.length);
      node.turn = { callId: node.turn.callId, tokenIds: turn.tokenIds.subarray(0, node.turn.tokenIds.length) };
    }
    node = childOf(node.next, reply, (bytes) => this.#grow(trial, bytes));
    // The same reply to the same messages, sampled twice: the ids of the first one stand.
    if (node.turn) return;
    node.turn = turn;
    this.#grow(trial, 4 * turn.tokenIds.length);
  }

  #addRow(at: { trialId: string; attempt: number }, row: CallRow): void {
    const trial = this.#use(at);
    trial.readTo = Math.max(trial.readTo, row.seq);
    if (row.status !== 'completed') return;
    const request = parseObject(new TextDecoder().decode(row.request)) ?? {};
    const message = onlyChoice(parseObject(row.response ? new TextDecoder().decode(row.response) : '') ?? {})?.message;
    const { promptTokenIds: prompt, completionTokenIds: completion } = row;
    const conversation = prompt && completion ? conversationOf(request) : null;
    this.add(at, conversation, message, { callId: row.id, tokenIds: Int32Array.from([...(prompt ?? []), ...(completion ?? [])]) });
  }

  #use({ trialId, attempt }: { trialId: string; attempt: number }): Trial {
    const key = `${trialId} ${attempt}`;
    const trial = this.#trials.get(key) ?? { roots: new Map(), calls: new Set(), bytes: 0, readTo: 0 };
    this.#trials.delete(key);
    this.#trials.set(key, trial);
    return trial;
  }

  /** What was not used for longest goes first: the store has it. */
  #grow(trial: Trial, bytes: number): void {
    trial.bytes += bytes;
    this.#bytes += bytes;
    for (const [key, oldest] of this.#trials) {
      if (this.#bytes <= (this.#options.maxBytes ?? 128 * 2 ** 20) || oldest === trial) return;
      this.#trials.delete(key);
      this.#bytes -= oldest.bytes;
    }
  }
}

/** Whether its ids are a part of a later turn's array. */
const sharesIds = ({ tokenIds }: Turn): boolean => tokenIds.byteLength < tokenIds.buffer.byteLength;

function childOf(nodes: Map<string, Node>, key: string, grow: (bytes: number) => void): Node {
  const known = nodes.get(key);
  if (known) return known;
  const node: Node = { turn: null, next: new Map() };
  nodes.set(key, node);
  grow(2 * key.length + 100);
  return node;
}
