import { expect, test } from 'vitest';
import { ADMIN_KEY, SECRET, startTestGateway } from '../../tests/support/harness/gateways.ts';
import { useToyGateway } from '../../tests/support/harness/token-gateway.ts';

const context = useToyGateway();
const TOOLS = [
  { type: 'function', function: { name: 'ls', description: 'lists', parameters: { type: 'object', properties: {} } } },
];

type Trial = Awaited<ReturnType<typeof context.trial>>;
type Ask = (path: string, body: unknown) => Promise<Response>;

const through =
  (url: string, { id, key }: Trial): Ask =>
  async (path, body) =>
    fetch(`${url}/${id}/v1${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });

/** Yields turns of several conversations of one trial: two chats that share their first message, with and without tools, and a text completion. */
function* conversations() {
  const chats = [
    { tools: TOOLS, messages: [] as unknown[] },
    { chat_template_kwargs: { enable_thinking: false }, messages: [] as unknown[] },
  ];
  const text = { prompt: 'Once' };
  for (let turn = 0; turn < 4; turn++) {
    for (const chat of chats) {
      chat.messages.push({
        role: 'user',
        content: turn === 0 ? 'begin' : [{ type: 'text', text: `question ${turn}` }],
      });
      yield {
        path: '/chat/completions',
        body: chat,
        onReply: (choice: { message: unknown }) => chat.messages.push(choice.message),
      };
    }
    yield {
      path: '/completions',
      body: text,
      onReply: (choice: { text: string }) => (text.prompt += `${choice.text} and ${turn}`),
    };
  }
}

async function converse(...asks: [Ask, ...Ask[]]): Promise<void> {
  let turn = 0;
  for (const { path, body, onReply } of conversations()) {
    context.toy.script = [{ text: `answer ${turn}` }];
    const reply = await (asks[turn++ % asks.length] ?? asks[0])(path, body);
    expect(reply.status).toBe(200);
    onReply((await reply.json()).choices[0]);
  }
}

/** Expects that all turns except the first of each conversation continue from recorded ids. */
async function expectExact(trial: Trial): Promise<void> {
  const calls = await trial.calls();
  expect(calls.map(({ continuation }) => continuation)).toEqual([
    null,
    'branched',
    'branched',
    ...Array(9).fill('clean'),
  ]);
  for (const call of calls.slice(3)) {
    const parent = calls.find(({ id }) => id === call.parentId);
    const ids = [...(parent?.promptTokenIds ?? []), ...(parent?.completionTokenIds ?? [])];
    expect(Array.from(call.promptTokenIds ?? []).slice(0, ids.length)).toEqual(ids);
  }
}

test('gateways that take turns in one trial’s conversations continue the ids that the others recorded', async () => {
  const other = await startTestGateway({
    host: '127.0.0.1',
    port: 0,
    engines: [context.toy.url],
    databaseUrl: context.postgres.url,
    adminKey: ADMIN_KEY,
    secret: SECRET,
  });
  try {
    const trial = await context.trial();
    await converse(through(context.gateway.url, trial), through(other.url, trial));
    await expectExact(trial);
  } finally {
    await other.close();
  }
});

test('a gateway continues recorded ids after a restart and with a memory that is too small for one conversation', async () => {
  const trial = await context.trial();
  const begun = conversations();
  for (let turn = 0; turn < 6; turn++) {
    if (turn === 3) await context.restart({ settings: { conversationMemoryBytes: 1 } });
    const next = begun.next().value;
    if (!next) break;
    context.toy.script = [{ text: `answer ${turn}` }];
    const reply = await through(context.gateway.url, trial)(next.path, next.body);
    next.onReply((await reply.json()).choices[0]);
    // Another trial makes the memory release this one.
    if (turn >= 3) await converse(through(context.gateway.url, await context.trial()));
  }
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([
    null,
    'branched',
    'branched',
    'clean',
    'clean',
    'clean',
  ]);
});

test('after a restart, concurrent text completions each continue their recorded ids, and the gateway reads no other turns', async () => {
  const trial = await context.trial();
  const prompts: string[] = [];
  const complete = async (prompt: string) => {
    const reply = await (await through(context.gateway.url, trial)('/completions', { prompt })).json();
    return `${prompt}${reply.choices[0].text}`;
  };
  context.toy.script = Array.from({ length: 20 }, (_, i) => ({ text: ` answer ${i}` }));
  for (let i = 0; i < 12; i++) prompts.push(await complete(i % 2 === 0 ? `story ${i}` : `${prompts.at(-1)} and`));
  await context.restart();
  const last = [prompts[5], prompts[9], prompts[11]].map((prompt) => complete(`${prompt} more`));
  await Promise.all(last);
  const calls = await trial.calls();
  expect(calls.slice(12).map(({ continuation }) => continuation)).toEqual(['clean', 'clean', 'clean']);
  expect((await context.metrics())['trialgate_conversation_reads_total{of="ids"}']).toBeLessThanOrEqual(3);
});
