import { expect, test } from 'vitest';
import { callRecord } from '../../store/testing/call-record.ts';
import { ConversationMemory, Conversations } from './conversations.ts';
import { conversationOf } from './messages.ts';

const user = (content: string) => ({ role: 'user', content });
const assistant = (content: string) => ({ role: 'assistant', content });
const ids = (length: number) => Int32Array.from({ length }, (_, i) => i);

/** A call whose prompt and completion together are the ids 0 to `length`. */
function add(conversations: Conversations, trialId: string, messages: unknown[], reply: string, length: number): void {
  const request = { messages };
  const response = { choices: [{ index: 0, message: assistant(reply) }] };
  const choice = { completionTokenIds: ids(length).subarray(length - 1) };
  const record = callRecord({ trialId, request, response, promptTokenIds: ids(length - 1), choice });
  conversations.add(conversationOf(request), record);
}

test('trials that nobody comes back to fill the memory', async () => {
  const reads: string[] = [];
  const conversations = new Conversations({
    memory: new ConversationMemory(400_000),
    readCalls: async ({ trialId }) => {
      reads.push(trialId);
      return [];
    },
  });
  for (let trial = 0; trial < 40; trial++) {
    const messages: unknown[] = [];
    for (let turn = 1; turn <= 5; turn++) {
      messages.push(user(`question ${turn}`));
      add(conversations, `${trial}`, messages, `${turn}`, 1000 * turn);
      messages.push(assistant(`${turn}`));
    }
  }
  const look = (trial: number) => conversations.find({ trialId: `${trial}`, attempt: 1, recorded: 5 }, conversationOf({ messages: [user('x')] }));
  await look(39);
  expect(reads).toEqual([]);
  await look(0);
  expect(reads).toEqual(['0']);
});

test('a turn\'s ids are kept once more in each turn that goes on from it', async () => {
  const conversations = new Conversations({ readCalls: async () => [] });
  add(conversations, 't', [user('a')], 'b', 10);
  const longer = [user('a'), assistant('b'), user('c')];
  add(conversations, 't', longer, 'd', 20);
  const find = (messages: unknown[]) => conversations.find({ trialId: 't', attempt: 1, recorded: 2 }, conversationOf({ messages }));
  const longest = [...longer, assistant('d'), user('e')];
  add(conversations, 't', longest, 'f', 30);
  const turns = [await find(longer), await find(longest), await find([...longest, assistant('f'), user('g')])].map(({ parent }) => parent);
  expect(turns.map((turn) => turn?.messages)).toEqual([2, 4, 6]);
  expect(turns.map((turn) => turn?.tokenIds.length)).toEqual([10, 20, 30]);
  expect(new Set(turns.map((turn) => turn?.tokenIds.buffer)).size).toBe(1);
});

test('a text completion goes on from a shorter prompt than it could', async () => {
  const conversations = new Conversations({ readCalls: async () => [] });
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
