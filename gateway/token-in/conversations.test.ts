import { expect, test } from 'vitest';
import { callRecord } from '../../store/testing/call-record.ts';
import { ConversationMemory } from './conversation-memory.ts';
import { Conversations } from './conversations.ts';
import { conversationOf } from './messages.ts';

const user = (content: string) => ({ role: 'user', content });
const assistant = (content: string) => ({ role: 'assistant', content });
const ids = (length: number) => Int32Array.from({ length }, (_, i) => i);

/** A call whose prompt and completion together are the ids 0 to `length`. */
function add(conversations: Conversations, trialId: string, messages: unknown[], reply: string, length: number, parentId?: string): string {
  const request = { messages };
  const response = { choices: [{ index: 0, message: assistant(reply) }] };
  const choice = { completionTokenIds: ids(length).subarray(length - 1) };
  const record = callRecord({ trialId, request, response, promptTokenIds: ids(length - 1), choice, ...(parentId === undefined ? {} : { parentId }) });
  conversations.add(conversationOf(request), record);
  return record.id;
}

/** Returns conversations over a store that holds only ids, and the reads from that store. */
function overStore(maxBytes?: number) {
  const reads: string[] = [];
  const conversations = new Conversations({
    memory: new ConversationMemory(maxBytes),
    readNew: async ({ trialId }) => {
      reads.push(trialId);
      return [];
    },
    readTurn: async (callId) => {
      reads.push(callId);
      return { prompt: ids(4), tokenIds: ids(5), text: '' };
    },
  });
  return { conversations, reads };
}

test('a memory that is full lets go of ids first, those of the trial that was not used for longest; they are read back for one call', async () => {
  const { conversations, reads } = overStore(400_000);
  const last: string[] = [];
  for (let trial = 0; trial < 40; trial++) {
    const messages: unknown[] = [];
    let id: string | undefined;
    for (let turn = 1; turn <= 5; turn++) {
      messages.push(user(`question ${turn}`));
      id = add(conversations, `${trial}`, messages, `${turn}`, 1000 * turn, id);
      messages.push(assistant(`${turn}`));
    }
    last.push(id ?? '');
  }
  const goOn = (trial: number) => {
    const said = [1, 2, 3, 4, 5].flatMap((turn) => [user(`question ${turn}`), assistant(`${turn}`)]);
    return conversations.find({ trialId: `${trial}`, attempt: 1, recorded: 5 }, conversationOf({ messages: [...said, user('x')] }));
  };
  expect((await goOn(39)).parent).toMatchObject({ callId: last[39], messages: 10 });
  expect(reads).toEqual([]);
  expect((await goOn(0)).parent).toMatchObject({ callId: last[0], messages: 10, tokenIds: ids(5) });
  expect(reads).toEqual([last[0]]);
  expect(conversations.memory.counts).toMatchObject({ readsOfTrials: 0, readsOfTurns: 1, forgotten: 0 });
  expect(conversations.memory.counts.bytes).toBeLessThanOrEqual(400_000);
});

test('a memory that is too small for what all trials said forgets whole trials, and reads those again', async () => {
  const { conversations, reads } = overStore(4_000);
  for (let trial = 0; trial < 10; trial++) add(conversations, `${trial}`, [user('a')], 'b', 10);
  const find = (trial: number) => conversations.find({ trialId: `${trial}`, attempt: 1, recorded: 1 }, conversationOf({ messages: [user('x')] }));
  await find(9);
  expect(reads).toEqual([]);
  await find(0);
  expect(reads).toEqual(['0']);
  expect(conversations.memory.counts.forgotten).toBeGreaterThan(0);
});

test('a turn that goes on from another shares its ids with it, and the one before that lets its own go', async () => {
  const { conversations, reads } = overStore();
  const first = add(conversations, 't', [user('a')], 'b', 10);
  const longer = [user('a'), assistant('b'), user('c')];
  const second = add(conversations, 't', longer, 'd', 20, first);
  const find = (messages: unknown[]) => conversations.find({ trialId: 't', attempt: 1, recorded: 2 }, conversationOf({ messages }));
  const longest = [...longer, assistant('d'), user('e')];
  add(conversations, 't', longest, 'f', 30, second);
  const turns = [await find(longest), await find([...longest, assistant('f'), user('g')])].map(({ parent }) => parent);
  expect(turns.map((turn) => [turn?.messages, turn?.tokenIds.length])).toEqual([[4, 20], [6, 30]]);
  expect(new Set(turns.map((turn) => turn?.tokenIds.buffer)).size).toBe(1);
  expect(reads).toEqual([]);
  expect((await find(longer)).parent).toMatchObject({ callId: first, messages: 2 });
  expect(reads).toEqual([first]);
});

test('a text completion goes on from a shorter prompt than it could', async () => {
  const { conversations } = overStore();
  for (const [prompt, text] of [['once', ' upon'], ['once upon a', ' time'], ['once upon a time', '']]) {
    const response = { choices: [{ index: 0, text }] };
    const length = `${prompt}${text}`.length;
    conversations.add(conversationOf({ prompt }), callRecord({ request: { prompt }, response, promptTokenIds: ids(length - 1), choice: { completionTokenIds: ids(1) } }));
  }
  const { parent } = await conversations.find({ trialId: 'trial', attempt: 1, recorded: 3 }, conversationOf({ prompt: 'once upon a time there' }));
  expect(parent?.text).toBe('once upon a time');
});

test('tools that are an empty list make the same prompt as none', () => {
  const contextOf = (tools: unknown) => conversationOf({ messages: [user('a')], tools });
  expect(contextOf(null)).toEqual(contextOf(undefined));
  expect(contextOf([])).not.toEqual(contextOf(undefined));
});
