import { expect, test } from 'vitest';
import type { JsonObject } from '../json.ts';
import { calling } from '../../tests/support/harness/calling.ts';
import { readEvents } from '../../tests/support/oracles/protocol-events.ts';
import { IN_WORKERD } from '../../tests/support/harness/gateways.ts';
import { useSharedToyGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useSharedToyGateway();
const user = (content: unknown) => ({ role: 'user', content });
const PDF = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0xLjQK' } };

type Trial = Awaited<ReturnType<typeof gateway.trial>>;
const post = (trial: Trial, route: string, body: JsonObject) =>
  gateway.post(`/${trial.id}/v1/${route}`, trial.key, { model: 'policy', ...body });

test('a trial continues after its agent read a PDF, and the gateway records, counts and logs the left-out block once', async () => {
  await gateway.restart();
  const trial = await gateway.trial();
  gateway.toy.script = [calling({ name: 'Read', arguments: { path: 'a.pdf' } }), 'it says hello', 'bye'].map(
    (text) => ({ text }),
  );
  const tools = [{ name: 'Read', input_schema: { type: 'object' } }];
  const said: unknown[] = [user('read a.pdf')];
  const turn = async (next: (content: JsonObject[]) => unknown) => {
    const reply = await post(trial, 'messages', { max_tokens: 100, tools, messages: said });
    expect(reply.status, await reply.clone().text()).toBe(200);
    const { content } = await gateway.json(reply);
    said.push({ role: 'assistant', content }, next(content as JsonObject[]));
  };
  await turn(([called]) =>
    user([
      { type: 'tool_result', tool_use_id: called?.id, content: [{ type: 'text', text: 'PDF file read: a.pdf' }, PDF] },
    ]),
  );
  await turn(() => user('thanks'));
  await turn(() => user('bye'));
  const calls = await trial.calls();
  expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean', 'clean']);
  const block = [{ at: 'messages.2.content.0.content.1', value: PDF }];
  expect(calls.map(({ request }) => request.left_out)).toEqual([undefined, block, block]);
  const { turns } = await gateway.json(await gateway.admin('GET', `/sessions/${trial.id}`));
  expect(turns).toMatchObject([{ left_out: null }, { left_out: block }, { left_out: block }]);
  expect(await gateway.metrics()).toMatchObject({ 'trialgate_left_out_total{type="document"}': 1 });
  if (gateway.log.length > 0) expect(gateway.log.filter((line) => line.includes('(document)'))).toHaveLength(1);
});

test('a message that holds only a document is recorded and sent to the engine as an empty message', async () => {
  const trial = await gateway.trial();
  for (const messages of [[user([PDF])], [user('read'), { role: 'assistant', content: 'what?' }, user([PDF])]]) {
    expect((await post(trial, 'messages', { max_tokens: 100, messages })).status).toBe(200);
  }
  expect((await trial.calls()).map(({ request }) => (request.messages as unknown[]).at(-1))).toEqual([
    user(''),
    user(''),
  ]);
});

test.each([false, true])(
  'a Responses request may name recorded items by their ids instead of repeating them (stream: %s)',
  async (stream) => {
    const trial = await gateway.trial({ sampling: { keep_thinking: 'always' } });
    gateway.toy.script = [
      `<think>hm</think>looking${calling({ name: 'ls', arguments: { path: 'a' } }, { name: 'ls', arguments: {} })}`,
      'done',
      'bye',
    ].map((text) => ({ text }));
    const tools = [{ type: 'function', name: 'ls', parameters: { type: 'object' } }];
    const ask = async (input: unknown[]): Promise<JsonObject[]> => {
      const reply = await post(trial, 'responses', { tools, input, stream });
      expect(reply.status, await (reply.ok ? '' : reply.clone().text())).toBe(200);
      const whole = stream ? (await readEvents(reply)).events.at(-1)?.response : await gateway.json(reply);
      return (whole as { output: JsonObject[] }).output;
    };
    // Builds the item references that the AI SDK's `createOpenAI()` sends from its second step on.
    const named = (output: JsonObject[]) => output.map(({ id }) => ({ type: 'item_reference', id }));
    const first = await ask([user('look')]);
    expect(first.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call', 'function_call']);
    const results = first.flatMap(({ call_id }) =>
      call_id ? [{ type: 'function_call_output', call_id, output: 'a.txt' }] : [],
    );
    const history = [user('look'), ...named(first), ...results];
    const second = await ask(history);
    await ask([...history, ...named(second), user('thanks')]);
    const calls = await trial.calls();
    expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean', 'clean']);
    expect(calls[2]?.request.messages).toMatchObject([
      user('look'),
      { role: 'assistant', content: 'looking', reasoning: 'hm', tool_calls: [{}, {}] },
      { role: 'tool' },
      { role: 'tool' },
      { role: 'assistant', content: 'done' },
      user('thanks'),
    ]);
  },
);

test('a Responses request that names an item that its attempt does not have is refused with the item’s path and id', async () => {
  const [trial, other] = [await gateway.trial(), await gateway.trial()];
  const { output } = await gateway.json(await post(other, 'responses', { input: 'hi' }));
  for (const named of [(output as { id: string }[])[0]?.id, 'msg_of_someone_else']) {
    const reply = await post(trial, 'responses', { input: [user('hi'), { type: 'item_reference', id: named }] });
    expect(reply.status).toBe(400);
    expect(await reply.json()).toMatchObject({
      error: {
        code: 'item_not_found',
        message: expect.stringContaining(`input.1: this attempt of the trial has no item "${named}"`),
      },
    });
  }
});

test.each([
  ['custom', 'function'],
  ['function', 'custom'],
])(
  'a referenced call of a %s tool stays in the prompt when later requests declare the tool as %s and when they declare none',
  async (type, later) => {
    const trial = await gateway.trial();
    gateway.toy.script = [calling({ name: 'patch', arguments: { input: 'x' } }), 'done', 'bye'].map((text) => ({
      text,
    }));
    const asked = (tools: JsonObject[], input: unknown[]) => post(trial, 'responses', { tools, input });
    const { output } = await gateway.json(await asked([{ type, name: 'patch' }], [user('go')]));
    const [call] = output as JsonObject[];
    const history = [
      user('go'),
      { type: 'item_reference', id: call?.id },
      { type: `${type === 'custom' ? 'custom_tool' : 'function'}_call_output`, call_id: call?.call_id, output: 'ok' },
    ];
    for (const tools of [[], [{ type: later, name: 'patch' }]]) expect((await asked(tools, history)).status).toBe(200);
    for (const { request } of (await trial.calls()).slice(1))
      expect(request.messages).toMatchObject([
        user('go'),
        { role: 'assistant', tool_calls: [{ function: { name: 'patch' } }] },
        { role: 'tool' },
      ]);
  },
);

test('a second reference to one text of a reply adds nothing, and a reference to a part that the reply does not have is refused', async () => {
  const trial = await gateway.trial();
  const { output } = await gateway.json(await post(trial, 'responses', { input: 'hi' }));
  const id = String((output as JsonObject[])[0]?.id).replace(/_0$/, '');
  const named = (...ids: string[]) =>
    post(trial, 'responses', {
      input: [user('hi'), ...ids.map((each) => ({ type: 'item_reference', id: each })), user('more')],
    });
  expect((await named(`${id}_0`, `${id}_1`)).status).toBe(200);
  expect((await trial.calls())[1]?.request.messages).toMatchObject([user('hi'), { role: 'assistant' }, user('more')]);
  for (const unknown of [id.replace('msg', 'fc'), id.replace('msg', 'rs')]) {
    const reply = await named(`${unknown}_0`);
    expect([reply.status, (await reply.json()).error.code]).toEqual([400, 'item_not_found']);
  }
});

test.skipIf(IN_WORKERD)(
  'a small request that references much recorded content has the limits of a large one and is answered by the heavy thread',
  async () => {
    const trial = await gateway.trial();
    gateway.toy.script = Array.from({ length: 4 }, () => ({ text: 'word '.repeat(12_000) }));
    const reply = await gateway.json(await post(trial, 'responses', { input: 'tell' }));
    const [item] = reply.output as JsonObject[];
    const naming = (times: number) =>
      post(trial, 'responses', {
        input: [...Array(times).fill({ type: 'item_reference', id: item?.id }), user('more')],
      });
    expect((await naming(3)).status).toBe(200);
    await gateway.restart({ settings: { maxBodyBytes: 300_000 } });
    const refused = await naming(6);
    expect([refused.status, (await refused.json()).error.code]).toEqual([413, 'request_too_large']);
    expect((await naming(3)).status).toBe(200);
    await gateway.restart({ heavyThread: new URL('data:text/javascript,throw new Error("no thread")') });
    expect((await naming(1)).status).toBe(200);
    const previous = (await trial.calls()).at(-2)?.id.replaceAll('-', '');
    for (const large of [
      naming(3),
      post(trial, 'responses', { input: 'more', previous_response_id: `resp_${previous}` }),
    ]) {
      const answer = await large;
      expect([answer.status, (await answer.json()).error.code]).toEqual([503, 'large_requests_unavailable']);
    }
  },
);

test('tool arguments that are not a JSON object reach the agent unchanged and are accepted in its next request', async () => {
  const trial = await gateway.trial();
  gateway.toy.script = [calling({ name: 'f', arguments: [1, 'x'] }), 'bye'].map((text) => ({ text }));
  const first = { max_tokens: 100, tools: [{ name: 'f', input_schema: {} }], messages: [user('go')] };
  const { content } = await gateway.json(await post(trial, 'messages', first));
  expect(content).toMatchObject([{ type: 'tool_use', input: [1, 'x'] }]);
  const next = await post(trial, 'messages', {
    ...first,
    messages: [
      ...first.messages,
      { role: 'assistant', content },
      user([{ type: 'tool_result', tool_use_id: (content as { id: string }[])[0]?.id, content: 'ok' }]),
    ],
  });
  expect(next.status).toBe(200);
  expect((await trial.calls()).map(({ continuation }) => continuation)).toEqual([null, 'clean']);
});
