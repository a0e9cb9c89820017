import { expect, test } from 'vitest';
import { shorten, type Base } from '../../store/calls/shorten.ts';
import type { NewCall } from '../../store/queries/read-new-calls.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { ConversationMemory } from './conversation-memory.ts';
import { Conversations } from './conversations.ts';
import { conversationOf } from './messages.ts';

const user = (content: string) => ({ role: 'user', content });
const assistant = (content: string) => ({ role: 'assistant', content });
const ids = (length: number) => Int32Array.from({ length }, (_, i) => i);

const conversationLists = (messages: unknown[]) =>
  callRecord({ request: { messages } }).request.lists.messages?.map(({ digest }) => digest) ?? [];

/** Adds a call whose prompt and completion together are the ids 0 to `length`. */
function add(
  conversations: Conversations,
  trialId: string,
  messages: unknown[],
  reply: string,
  length: number,
  parentId?: string,
): string {
  const request = { messages };
  const response = { choices: [{ index: 0, message: assistant(reply) }] };
  const choice = { completionTokenIds: ids(length).subarray(length - 1) };
  const record = callRecord({
    trialId,
    request,
    response,
    promptTokenIds: ids(length - 1),
    choice,
    ...(parentId === undefined ? {} : { parentId }),
  });
  conversations.add(conversationOf(request), record);
  return record.id;
}

/** Returns conversations over a store that holds only ids, and a list of the reads from it. */
function overStore(maxBytes?: number, rows: readonly NewCall[] = []) {
  const reads: string[] = [];
  const faults: Error[] = [];
  const conversations = new Conversations({
    memory: new ConversationMemory(maxBytes),
    readNew: async ({ trialId }) => {
      reads.push(trialId);
      return [...rows];
    },
    readTurn: async (callId, known) => {
      reads.push(known ? `${callId} after ${known.callId}` : callId);
      const fault = faults.pop();
      if (fault) throw fault;
      return { prompt: ids(4), tokenIds: ids(5), text: '' };
    },
  });
  return { conversations, reads, faults };
}

/** Returns rows of another process's calls, each built on the one before. */
function storedRows(
  calls: readonly { request: Record<string, unknown>; response: Record<string, unknown>; text: string }[],
  first: Base | null = null,
): NewCall[] {
  let base = first;
  return calls.map(({ request, response, text }, i) => {
    const record = callRecord({ request });
    const short = shorten(record.request, base, new Set());
    const row = {
      id: record.id,
      seq: i + 1,
      baseId: base?.callId ?? null,
      status: 'completed' as const,
      request: Buffer.from(JSON.stringify(short)),
      response: Buffer.from(JSON.stringify(response)),
      isShownInPart: false,
      tokens: 1,
    };
    base = { callId: record.id, tokenIds: new Int32Array(), lists: {}, text };
    return row;
  });
}

test('a full memory first releases the ids of the trial that was used least recently, and reads them back for one call', async () => {
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
    return conversations.find(
      { trialId: `${trial}`, attempt: 1, recorded: 5 },
      conversationOf({ messages: [...said, user('x')] }),
    );
  };
  expect((await goOn(39)).parent).toMatchObject({ callId: last[39], messages: 10 });
  expect(reads).toEqual([]);
  expect((await goOn(0)).parent).toMatchObject({ callId: last[0], messages: 10, tokenIds: ids(5) });
  expect(reads).toEqual([last[0]]);
  expect(conversations.memory.counts).toMatchObject({ readsOfTrials: 0, readsOfTurns: 1, forgotten: 0 });
  expect(conversations.memory.counts.bytes).toBeLessThanOrEqual(400_000);
});

test('when its memory is too small for all trials, the gateway forgets whole trials and reads them again when needed', async () => {
  const { conversations, reads } = overStore(4_000);
  for (let trial = 0; trial < 10; trial++) add(conversations, `${trial}`, [user('a')], 'b', 10);
  const find = (trial: number) =>
    conversations.find({ trialId: `${trial}`, attempt: 1, recorded: 1 }, conversationOf({ messages: [user('x')] }));
  await find(9);
  expect(reads).toEqual([]);
  await find(0);
  expect(reads).toEqual(['0']);
  expect(conversations.memory.counts.forgotten).toBeGreaterThan(0);
});

test('in memory a turn shares its ids with the turn that it continues, and the ids of earlier turns are released', async () => {
  const { conversations, reads } = overStore();
  const first = add(conversations, 't', [user('a')], 'b', 10);
  const longer = [user('a'), assistant('b'), user('c')];
  const second = add(conversations, 't', longer, 'd', 20, first);
  const find = (messages: unknown[]) =>
    conversations.find({ trialId: 't', attempt: 1, recorded: 2 }, conversationOf({ messages }));
  const longest = [...longer, assistant('d'), user('e')];
  add(conversations, 't', longest, 'f', 30, second);
  const turns = [await find(longest), await find([...longest, assistant('f'), user('g')])].map(({ parent }) => parent);
  expect(turns.map((turn) => [turn?.messages, turn?.tokenIds.length])).toEqual([
    [4, 20],
    [6, 30],
  ]);
  expect(new Set(turns.map((turn) => turn?.tokenIds.buffer)).size).toBe(1);
  expect(reads).toEqual([]);
  expect((await find(longer)).parent).toMatchObject({ callId: first, messages: 2 });
  expect(reads).toEqual([first]);
});

test('a text completion continues the longest recorded prompt and reply with which its own prompt begins', async () => {
  const { conversations } = overStore();
  for (const [prompt, text] of [
    ['once', ' upon'],
    ['once upon a', ' time'],
    ['once upon a time', ''],
  ]) {
    const response = { choices: [{ index: 0, text }] };
    const length = `${prompt}${text}`.length;
    conversations.add(
      conversationOf({ prompt }),
      callRecord({
        request: { prompt },
        response,
        promptTokenIds: ids(length - 1),
        choice: { completionTokenIds: ids(1) },
      }),
    );
  }
  const { parent } = await conversations.find(
    { trialId: 'trial', attempt: 1, recorded: 3 },
    conversationOf({ prompt: 'once upon a time there' }),
  );
  expect(parent?.text).toBe('once upon a time');
});

test('a trial that often branches from a long context stays within the memory’s limit, and other trials keep their ids', async () => {
  const { conversations, reads } = overStore(400_000);
  const quiet = add(conversations, 'quiet', [user('a')], 'b', 10);
  const context = [user('read this'), assistant('context')];
  const first = add(conversations, 'busy', context.slice(0, 1), 'context', 5000);
  for (let i = 0; i < 100; i++) add(conversations, 'busy', [...context, user(`branch ${i}`)], `${i}`, 6000, first);
  expect(conversations.memory.counts.bytes).toBeLessThanOrEqual(400_000);
  const { parent } = await conversations.find(
    { trialId: 'quiet', attempt: 1, recorded: 1 },
    conversationOf({ messages: [user('a'), assistant('b'), user('c')] }),
  );
  expect([parent?.callId, reads]).toEqual([quiet, []]);
});

test('of a turn that another gateway recorded, only what follows the nearest turn in memory is read from the store', async () => {
  const lists = { messages: conversationLists([user('a')]) };
  const rows: NewCall[] = [];
  const { conversations, reads } = overStore(undefined, rows);
  const own = add(conversations, 'trial', [user('a')], 'b', 4);
  const longer = [user('a'), assistant('b'), user('c')];
  rows.push(
    ...storedRows([{ request: { messages: longer }, response: { choices: [{ message: assistant('d') }] }, text: '' }], {
      callId: own,
      tokenIds: ids(4),
      lists,
      text: '',
    }),
  );
  const { parent } = await conversations.find(
    { trialId: 'trial', attempt: 1, recorded: 2 },
    conversationOf({ messages: [...longer, assistant('d'), user('e')] }),
  );
  expect(parent?.callId).toBe(rows[0]?.id);
  expect(reads).toEqual(['trial', `${rows[0]?.id} after ${own}`]);
});

test('a text completion continues one that another gateway recorded, and reads only that one from the store', async () => {
  const calls = ['once', 'once upon', 'once upon a'].map((prompt) => ({
    request: { prompt },
    response: { choices: [{ text: `, ${prompt}` }] },
    text: `${prompt}, ${prompt}`,
  }));
  const rows = storedRows(calls);
  const { conversations, reads } = overStore(undefined, rows);
  const finds = calls.map(({ text }) =>
    conversations.find({ trialId: 'trial', attempt: 1, recorded: 3 }, conversationOf({ prompt: `${text} and more` })),
  );
  expect((await Promise.all(finds)).map(({ parent }) => parent?.callId)).toEqual(rows.map(({ id }) => id));
  expect(reads.map((read) => read.split(' ')[0]).toSorted()).toEqual(['trial', ...rows.map(({ id }) => id)].toSorted());
});

test('a text completion that the store failed to read once is found by the next request', async () => {
  const prompts = [
    [7, 8, 9],
    [0, 1, 2, 3],
  ];
  const rows = storedRows(
    prompts.map((prompt) => ({ request: { prompt }, response: { choices: [{ text: 'x' }] }, text: 'x' })),
  );
  const { conversations, faults } = overStore(undefined, rows);
  const find = () =>
    conversations.find({ trialId: 'trial', attempt: 1, recorded: 2 }, conversationOf({ prompt: [0, 1, 2, 3, 4, 5] }));
  faults.push(new Error('the database is away'));
  await expect(find()).rejects.toThrow('away');
  expect((await find()).parent?.tokenIds).toEqual(ids(5));
});

test('`tools: null` makes the same conversation as no tools, and an empty list of tools makes another one', () => {
  const contextOf = (tools: unknown) => conversationOf({ messages: [user('a')], tools });
  expect(contextOf(null)).toEqual(contextOf(undefined));
  expect(contextOf([])).not.toEqual(contextOf(undefined));
});
