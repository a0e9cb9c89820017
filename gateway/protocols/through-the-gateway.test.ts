import { expect, test } from 'vitest';
import { isObject, type JsonObject } from '../json.ts';
import { readEvents, typesOf } from '../../tests/support/oracles/protocol-events.ts';
import { calling } from '../../tests/support/harness/calling.ts';
import { pretendCut } from '../../tests/support/fakes/lost-replies.ts';
import { useSharedToyGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useSharedToyGateway();

const SCHEMA = { type: 'object', properties: { path: { type: 'string' } } };
const user = (text: string) => ({ role: 'user', content: text });
type Trial = Awaited<ReturnType<typeof gateway.trial>>;
type TurnResult = { reply: JsonObject; types: string[] };

/** For each protocol: what its clients send, and how they build the next request from a reply and a tool's result. */
const KINDS = {
  messages: {
    path: 'messages',
    first: {
      max_tokens: 100,
      system: 'be short',
      tools: [{ name: 'ls', input_schema: SCHEMA }],
      messages: [user('look')],
    },
    ended: ({ events }: Awaited<ReturnType<typeof readEvents>>): JsonObject => messageOf(events),
    next: (before: JsonObject, { content }: JsonObject, said: string | null): JsonObject => {
      const calls = listOf(content).filter(({ type }) => type === 'tool_use');
      const results = calls.map(({ id }) => ({
        type: 'tool_result',
        tool_use_id: id,
        content: [{ type: 'text', text: 'a.txt' }],
      }));
      return {
        ...before,
        messages: [
          ...listOf(before.messages),
          { role: 'assistant', content },
          { role: 'user', content: said ?? results },
        ],
      };
    },
  },
  responses: {
    path: 'responses',
    first: {
      instructions: 'be short',
      tools: [{ type: 'function', name: 'ls', parameters: SCHEMA }],
      input: [user('look')],
    },
    ended: ({ events }: Awaited<ReturnType<typeof readEvents>>): JsonObject => objectOf(events.at(-1)?.response),
    next: (before: JsonObject, { output }: JsonObject, said: string | null): JsonObject => {
      const results = listOf(output).flatMap(({ type, call_id }) =>
        type === 'function_call' ? [{ type: 'function_call_output', call_id, output: 'a.txt' }] : [],
      );
      return {
        ...before,
        input: [...listOf(before.input), ...listOf(output), ...(said === null ? results : [user(said)])],
      };
    },
  },
};
const EACH = (['messages', 'responses'] as const).flatMap((kind) => [
  { kind, stream: false },
  { kind, stream: true },
]);

const objectOf = (value: unknown): JsonObject => (isObject(value) ? value : {});
const listOf = (value: unknown): JsonObject[] => (Array.isArray(value) ? value.filter(isObject) : []);

function messageOf(events: readonly JsonObject[]): JsonObject {
  const content: JsonObject[] = [];
  for (const event of events) {
    if (event.type === 'content_block_start') content.push({ ...objectOf(event.content_block), json: '' });
    const [block, delta] = [content.at(-1), objectOf(event.delta)];
    if (event.type !== 'content_block_delta' || !block) continue;
    if (delta.type === 'text_delta') block.text = `${String(block.text)}${String(delta.text)}`;
    if (delta.type === 'thinking_delta') block.thinking = `${String(block.thinking)}${String(delta.thinking)}`;
    if (delta.type === 'input_json_delta') block.json = `${String(block.json)}${String(delta.partial_json)}`;
  }
  const blocks = content.map(({ json, ...block }) =>
    block.type === 'tool_use' ? { ...block, input: JSON.parse(String(json)) } : block,
  );
  return { ...objectOf(events[0]?.message), ...objectOf(events.at(-2)?.delta), content: blocks };
}

async function ask(
  trial: Trial,
  kind: keyof typeof KINDS,
  body: JsonObject,
  init: Record<string, string> = {},
): Promise<Response> {
  const headers = { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json', ...init };
  return gateway.post(`/${trial.id}/v1/${KINDS[kind].path}`, trial.key, { model: 'policy', ...body }, { headers });
}

async function turn(trial: Trial, kind: keyof typeof KINDS, body: JsonObject): Promise<TurnResult> {
  const reply = await ask(trial, kind, body);
  expect(reply.status, await (reply.ok ? '' : reply.clone().text())).toBe(200);
  if (body.stream !== true) return { reply: await gateway.json(reply), types: [] };
  const events = await readEvents(reply);
  expect(events.broken).toBe(false);
  return { reply: KINDS[kind].ended(events), types: typesOf(events.events) };
}

const SAID = [
  `<think>hm</think>looking${calling({ name: 'ls', arguments: { path: '🦀/b', depth: 1.5 } }, { name: 'ls', arguments: {} })}`,
  calling({ name: 'ls', arguments: { path: 'a "b"\n' } }),
  'two  files\n',
  'bye',
];

test.each(EACH)(
  'a conversation over $kind continues the sampled ids in every turn (stream: $stream)',
  async ({ kind, stream }) => {
    const trial = await gateway.trial({ sampling: { keep_thinking: 'always' } });
    gateway.toy.script = SAID.map((text) => ({ text }));
    let body: JsonObject = { ...KINDS[kind].first, stream };
    for (const said of [null, null, 'and now?'])
      body = KINDS[kind].next(body, (await turn(trial, kind, body)).reply, said);
    await turn(trial, kind, body);
    const calls = await trial.calls();
    expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean', 'clean', 'clean']);
    expect(calls.map(({ protocol }) => protocol)).toEqual(Array(4).fill(kind));
    const samples = await gateway.samplesOf(trial.id);
    expect(samples).toHaveLength(1);
    expect(samples[0]?.loss_mask.filter(Boolean)).toHaveLength(
      gateway.toy.generated.reduce((sum, { completion }) => sum + completion.length, 0),
    );
  },
);

test.each(EACH)(
  'in protocol $kind the agent gets the reasoning of a later turn as reasoning, and not as text (stream: $stream)',
  async ({ kind, stream }) => {
    const trial = await gateway.trial();
    gateway.toy.script = [{ text: 'hello' }, { text: '<think>hm, 🦀</think>looking' }];
    const first = { ...KINDS[kind].first, stream };
    const body = KINDS[kind].next(first, (await turn(trial, kind, first)).reply, 'and now?');
    const said = JSON.stringify((await turn(trial, kind, body)).reply);
    expect([said.match(/hm, 🦀/g)?.length, said.includes('looking'), said.includes('think>')]).toEqual([
      1,
      true,
      false,
    ]);
    const call = (await trial.calls()).at(-1);
    expect(call).toMatchObject({
      continuation: 'clean',
      response: { choices: [{ message: { content: 'looking', reasoning: 'hm, 🦀' } }] },
    });
  },
);

test.each(EACH)(
  '$kind: a client’s retry gets the undelivered reply in the form of its first try (stream: $stream)',
  async ({ kind, stream }) => {
    const trial = await gateway.trial();
    gateway.toy.script = [{ text: SAID[0] ?? '' }];
    const body = { ...KINDS[kind].first, stream };
    const read = async (reply: Response) => (stream ? KINDS[kind].ended(await readEvents(reply)) : gateway.json(reply));
    const delivered = await ask(trial, kind, body, { 'x-stainless-retry-count': '0' });
    const first = await read(delivered);
    await pretendCut(gateway.db, delivered.headers.get('x-trialgate-call'));
    const again = await ask(trial, kind, body, { 'x-stainless-retry-count': '1' });
    expect(again.headers.get('x-trialgate-replay')).toBe('true');
    expect(await read(again)).toEqual(first);
    expect(await trial.calls()).toHaveLength(1);
  },
);

test.each(EACH)(
  '$kind: a call past the budget of calls ends as the protocol says that a length limit was reached (stream: $stream)',
  async ({ kind, stream }) => {
    const trial = await gateway.trial({ budgets: { calls: 1 } });
    const body = { ...KINDS[kind].first, stream };
    await turn(trial, kind, body);
    const { reply } = await turn(trial, kind, body);
    expect(reply).toMatchObject(
      kind === 'messages'
        ? { stop_reason: 'max_tokens' }
        : { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, output: [] },
    );
  },
);

test.each([
  { kind: 'messages' as const, sign: /^event: ping\ndata: {"type":"ping"}$/gm },
  { kind: 'responses' as const, sign: /^: keep-alive$/gm },
])(
  '$kind: the gateway keeps a stream that waits alive with the protocol’s own event or comment',
  async ({ kind, sign }) => {
    await gateway.restart({ settings: { keepAliveMs: 30 } });
    const trial = await gateway.trial();
    const body = { ...KINDS[kind].first, stream: true };
    const second = KINDS[kind].next(body, (await turn(trial, kind, body)).reply, 'and?');
    gateway.toy.before = async ({ path }) =>
      void (/\/(generate|completions)$/.test(path) && (await new Promise((resolve) => setTimeout(resolve, 250))));
    const text = await (await ask(trial, kind, second)).text();
    expect(text.match(sign)?.length).toBeGreaterThan(2);
    expect(text).toContain('nothing to say');
  },
);

test('a Responses request continues a response that another gateway process gave, with the instructions of its own request', async () => {
  const trial = await gateway.trial();
  gateway.toy.script = [{ text: calling({ name: 'ls', arguments: {} }) }, { text: 'files' }, { text: 'bye' }];
  const { instructions, tools, input } = KINDS.responses.first;
  const first = (await turn(trial, 'responses', { instructions, tools, input })).reply;
  const results = listOf(first.output).map(({ call_id }) => ({
    type: 'function_call_output',
    call_id,
    output: 'a.txt',
  }));
  await gateway.restart();
  const second = (
    await turn(trial, 'responses', {
      instructions,
      tools,
      input: results,
      previous_response_id: first.id,
      stream: true,
    })
  ).reply;
  expect(second).toMatchObject({ previous_response_id: first.id, status: 'completed' });
  await turn(trial, 'responses', { instructions: 'be long', tools, input: 'more', previous_response_id: second.id });
  const calls = await trial.calls();
  expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean', 'branched']);
  expect(listOf(calls[2]?.request.messages).map(({ role, content }) => [role, content])).toEqual([
    ['system', 'be long'],
    ['user', 'look'],
    ['assistant', ''],
    ['tool', 'a.txt'],
    ['assistant', 'files'],
    ['user', 'more'],
  ]);
});

test.each(['resp_7', `resp_${'0'.repeat(32)}`])(
  'a Responses request cannot continue a response of another trial or one that does not exist: %s',
  async (unknown) => {
    const other = await gateway.trial();
    const { id } = (await turn(other, 'responses', { input: 'x' })).reply;
    const trial = await gateway.trial();
    for (const previous_response_id of [unknown, id]) {
      const reply = await ask(trial, 'responses', { input: 'x', previous_response_id });
      expect([reply.status, reply.headers.get('x-should-retry')]).toEqual([400, 'false']);
      expect(await reply.json()).toMatchObject({ error: { code: 'previous_response_not_found' } });
    }
  },
);

test.each(['URL', 'key'])(
  '`count_tokens` gives the tokens that the same call sends, and is not recorded (trial named by its %s)',
  async (by) => {
    const trial = await gateway.trial();
    const { max_tokens: _, ...counted } = KINDS.messages.first;
    const reply = await gateway.post(
      `${by === 'URL' ? `/${trial.id}` : ''}/v1/messages/count_tokens?beta=true`,
      trial.key,
      { model: 'policy', ...counted },
    );
    const { usage } = (await turn(trial, 'messages', KINDS.messages.first)).reply;
    expect(await reply.json()).toEqual({ input_tokens: objectOf(usage).input_tokens });
    expect(await trial.calls()).toHaveLength(1);
  },
);

test.each(['x-api-key', 'authorization'])(
  'an agent that sends its key over Messages in the header %s is answered',
  async (header) => {
    const trial = await gateway.trial();
    const headers = {
      'content-type': 'application/json',
      'anthropic-version': '2023-06-01',
      [header]: header === 'x-api-key' ? trial.key : `Bearer ${trial.key}`,
    };
    const reply = await gateway.post(`/${trial.id}/v1/messages?beta=true`, '', KINDS.messages.first, { headers });
    expect(await reply.json()).toMatchObject({ type: 'message', role: 'assistant', stop_reason: 'end_turn' });
  },
);

test('an error of the gateway has the envelope of the agent’s protocol and the right status', async () => {
  const trial = await gateway.trial();
  const failures = async (path: string, key: string, body: unknown) => {
    const reply = await gateway.post(`/${trial.id}/v1/${path}`, key, body);
    return [reply.status, reply.headers.get('x-should-retry'), await reply.json()];
  };
  const { first } = KINDS.messages;
  expect(await failures('messages', 'wrong', first)).toEqual([
    401,
    'false',
    { type: 'error', error: { type: 'authentication_error', message: expect.any(String) } },
  ]);
  expect(await failures('messages/count_tokens', trial.key, {})).toEqual([
    400,
    'false',
    { type: 'error', error: { type: 'invalid_request_error', message: expect.stringMatching(/^messages/) } },
  ]);
  gateway.toy.fault = (path) => (path === '/v1/chat/completions' ? 500 : null);
  expect(await failures('messages', trial.key, first)).toEqual([
    502,
    null,
    { type: 'error', error: { type: 'api_error', message: expect.stringMatching(/at fault/) } },
  ]);
  expect(await failures('responses', trial.key, { input: 'x' })).toEqual([
    502,
    null,
    { error: { type: 'server_error', code: 'engine_error', param: null, message: expect.stringMatching(/at fault/) } },
  ]);
  gateway.toy.fault = () => 400;
  expect(await failures('messages', trial.key, first)).toEqual([
    400,
    null,
    { type: 'error', error: { type: 'invalid_request_error', message: expect.stringMatching(/at fault/) } },
  ]);
  await gateway.trial({ trialId: trial.id, attempt: 2 });
  expect(await failures('messages', trial.key, first)).toEqual([
    409,
    'false',
    { type: 'error', error: { type: 'invalid_request_error', message: expect.stringMatching(/closed/) } },
  ]);
});
