import { expect, test } from 'vitest';
import { Conversations } from './conversations.ts';
import { conversationOf } from './messages.ts';

const user = (content: string) => ({ role: 'user', content });
const ids = (length: number) => Int32Array.from({ length }, (_, i) => i);

test('trials that nobody comes back to fill the memory', async () => {
  const reads: string[] = [];
  const conversations = new Conversations({
    maxBytes: 400_000,
    readCalls: async ({ trialId }) => {
      reads.push(trialId);
      return [];
    },
  });
  for (let trial = 0; trial < 40; trial++) {
    const messages: unknown[] = [];
    for (let turn = 1; turn <= 5; turn++) {
      messages.push(user(`question ${turn}`));
      const at = { trialId: `${trial}`, attempt: 1 };
      conversations.add(at, conversationOf({ messages }), { role: 'assistant', content: `${turn}` }, { callId: `${turn}`, tokenIds: ids(1000 * turn) });
      messages.push({ role: 'assistant', content: `${turn}` });
    }
  }
  const look = (trial: number) => conversations.find({ trialId: `${trial}`, attempt: 1, completed: 5 }, conversationOf({ messages: [user('x')] }));
  await look(39);
  expect(reads).toEqual([]);
  await look(0);
  expect(reads).toEqual(['0']);
});

test('a turn\'s ids are kept once more in each turn that goes on from it', async () => {
  const conversations = new Conversations({ readCalls: async () => [] });
  const at = { trialId: 't', attempt: 1 };
  conversations.add(at, conversationOf({ messages: [user('a')] }), { role: 'assistant', content: 'b' }, { callId: '1', tokenIds: ids(10) });
  const longer = [user('a'), { role: 'assistant', content: 'b' }, user('c')];
  const second = { callId: '2', tokenIds: ids(20) };
  conversations.add(at, conversationOf({ messages: longer }), { role: 'assistant', content: 'd' }, second);
  const { parent } = await conversations.find({ ...at, completed: 2 }, conversationOf({ messages: longer }));
  expect(parent).toMatchObject({ callId: '1', messages: 2 });
  expect(parent?.tokenIds.buffer).toBe(second.tokenIds.buffer);
});
