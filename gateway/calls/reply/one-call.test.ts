import { expect, test } from 'vitest';
import { calling } from '../../../tests/support/harness/calling.ts';
import { decode } from '../../../tests/support/fakes/toy-tokenizer.ts';
import { useToyGateway } from '../../../tests/support/harness/token-gateway.ts';

const gateway = useToyGateway();
const TWO = calling({ name: 'ls', arguments: {} }, { name: 'cat', arguments: { file: 'a' } });
const USER = { role: 'user', content: 'look' };
const FUNCTIONS = ['ls', 'cat'].map((name) => ({ name, parameters: { type: 'object', properties: {} } }));
const TOOLS = FUNCTIONS.map((each) => ({ type: 'function', function: each }));

/** A request of each protocol that asks for one call at a time. */
const ASKED = {
  'chat/completions': { messages: [USER], tools: TOOLS, parallel_tool_calls: false },
  messages: {
    max_tokens: 500,
    messages: [USER],
    tools: FUNCTIONS.map(({ name, parameters }) => ({ name, input_schema: parameters })),
    tool_choice: { type: 'auto', disable_parallel_tool_use: true },
  },
  responses: {
    input: 'look',
    tools: FUNCTIONS.map((each) => ({ type: 'function', ...each })),
    parallel_tool_calls: false,
  },
};

test.each(Object.entries(ASKED).flatMap(([path, body]) => [false, true].map((stream) => ({ path, stream, body }))))(
  '$path (stream: $stream): an agent that asks for one call at a time is shown the first one, and the turn is not trained',
  async ({ path, stream, body }) => {
    const told: unknown[] = [];
    // The gateway asks SGLang at this route, once, whether the chat template shows tools.
    gateway.toy.before = ({ path: to, body: asked }) =>
      void (asked.tools && to !== '/tokenize' && told.push(asked['parallel_tool_calls']));
    gateway.toy.script = [{ text: TWO }];
    const trial = await gateway.trial();
    const reply = await gateway.post(`/${trial.id}/v1/${path}`, trial.key, { model: 'policy', ...body, stream });
    expect(reply.status).toBe(200);
    const text = await reply.text();
    expect([text.includes('"ls"'), text.includes('"cat"')]).toEqual([true, path === 'responses']); // a response repeats the tools
    expect(text).not.toContain('"file');
    expect(told).toEqual([undefined]);
    const [call] = await trial.calls();
    expect(call).toMatchObject({
      status: 'completed',
      untrainable: 'calls_not_shown',
      response: { choices: [{ finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'ls' } }] } }] },
    });
    expect(await gateway.samplesOf(trial.id)).toEqual([]);
  },
);

test.each([false, true])(
  'what follows such a turn goes on from what the agent was shown, as drift (after a restart of the gateway: %s)',
  async (restarts) => {
    const trial = await gateway.trial();
    gateway.toy.script = [{ text: TWO }, { text: 'done' }, { text: 'again' }];
    const body = { tools: TOOLS, parallel_tool_calls: false };
    const first = await (await trial.chat({ ...body, messages: [USER] })).json();
    const { message } = first.choices[0];
    const messages = [USER, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'a.txt' }];
    if (restarts) await gateway.restart();
    const second = await (await trial.chat({ ...body, messages })).json();
    await trial.chat({ ...body, messages: [...messages, second.choices[0].message, USER] });
    const calls = await trial.calls();
    expect(calls.map(({ continuation, untrainable }) => [continuation, untrainable])).toEqual([
      [null, 'calls_not_shown'],
      ['drifted', null],
      ['clean', null],
    ]);
    expect(calls[1]?.parentId).toBe(calls[0]?.id);
    const prompt = decode(gateway.toy.generated[1]?.prompt ?? []);
    expect([prompt.includes('a.txt'), prompt.includes('"file"')]).toEqual([true, false]);
  },
);

test('a single call of such an agent is trained and continued as any other', async () => {
  const trial = await gateway.trial();
  gateway.toy.script = [{ text: calling({ name: 'ls', arguments: {} }) }, { text: 'done' }];
  const body = { tools: TOOLS, parallel_tool_calls: false };
  const { choices } = await (await trial.chat({ ...body, messages: [USER] })).json();
  const result = { role: 'tool', tool_call_id: choices[0].message.tool_calls[0].id, content: 'a.txt' };
  await trial.chat({ ...body, messages: [USER, choices[0].message, result] });
  expect((await trial.calls()).map(({ continuation, untrainable }) => [continuation, untrainable])).toEqual([
    [null, null],
    ['clean', null],
  ]);
});
