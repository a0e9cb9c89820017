import { expect, test } from 'vitest';
import { calling } from '../../tests/support/harness/calling.ts';
import { useSharedTokenGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useSharedTokenGateway();
const GIVEN = '{"id":12345678901234567890,"10":1.0,"2":{"x":1e5,"0":-0}}';
const SCHEMA = '{"type":"object","properties":{"id":{"maximum":9223372036854775807,"default":1.0},"10":{},"2":{}}}';

type Trial = Awaited<ReturnType<typeof gateway.trial>>;
const post = async (trial: Trial, path: string, body: string) => {
  const reply = await gateway.post(`/${trial.id}/${path.startsWith('v1beta') ? '' : 'v1/'}${path}`, trial.key, body);
  const text = await reply.text();
  expect(reply.status, text).toBe(200);
  return text;
};
/** Collects the bodies that the engine's routes receive. */
function listen() {
  const sent: string[] = [];
  gateway.toy.onBody = (path, text) => void (path.startsWith('/v1/chat/completions') && sent.push(text));
  return sent;
}
const idOf = (reply: string): string => /"type":"tool_use","id":"([^"]+)"/.exec(reply)?.[1] ?? '';

test('numbers and the order of keys in a chat request reach the engine, the record and its export as the agent wrote them', async () => {
  const trial = await gateway.trial();
  const sent = listen();
  const tools = `[{"type":"function","function":{"name":"f","parameters":${SCHEMA}}}]`;
  const call = `{"id":"a","type":"function","function":{"name":"f","arguments":${JSON.stringify(GIVEN)}}}`;
  const history = `[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[${call}]},{"role":"tool","tool_call_id":"a","content":"ok"}]`;
  await post(
    trial,
    'chat/completions',
    `{"model":"m","temperature":1.0,"tools":${tools},"messages":${history},"extra":${GIVEN},"logit_bias":{"50":1.0,"7":-1.0}}`,
  );
  for (const text of [SCHEMA, `"extra":${GIVEN}`, '"logit_bias":{"50":1.0,"7":-1.0}', JSON.stringify(GIVEN)])
    expect(sent.at(-1)).toContain(text);
  const record = await (await gateway.admin('GET', `/sessions/${trial.id}`)).text();
  const exported = await (await gateway.admin('GET', '/sessions/export')).text();
  for (const text of [SCHEMA, JSON.stringify(GIVEN)])
    expect([record.includes(text), exported.includes(text)]).toEqual([true, true]);
});

test('the input of a tool call in a Messages request reaches the engine and the record as the agent wrote it', async () => {
  const trial = await gateway.trial();
  gateway.toy.parses = true;
  const sent = listen();
  // The toy engine writes its own arguments, and the agent's history has these.
  gateway.toy.script = [calling({ name: 'f', arguments: {} }), 'bye', 'bye'].map((text) => ({ text }));
  const tools = `[{"name":"f","input_schema":${SCHEMA}}]`;
  const asked = (messages: string) => `{"model":"m","max_tokens":50,"tools":${tools},"messages":[${messages}]}`;
  const first = await post(trial, 'messages', asked('{"role":"user","content":"x"}'));
  expect(sent.at(-1)).toContain(SCHEMA);
  const used = `{"type":"tool_use","id":"${idOf(first)}","name":"f","input":${GIVEN}}`;
  const result = `{"type":"tool_result","tool_use_id":"${idOf(first)}","content":"ok"}`;
  await post(
    trial,
    'messages',
    asked(
      `{"role":"user","content":"x"},{"role":"assistant","content":[${used}]},{"role":"user","content":[${result}]}`,
    ),
  );
  expect(sent.at(-1)).toContain(JSON.stringify(GIVEN));
  expect(await (await gateway.admin('GET', `/sessions/${trial.id}`)).text()).toContain(JSON.stringify(GIVEN));
});

test('a plain Messages reply has the engine’s tool arguments unchanged, and a request that repeats them continues by the recorded ids', async () => {
  const trial = await gateway.trial();
  gateway.toy.scaleOut = true;
  gateway.toy.route = (_, path, body) => {
    if (path !== '/v1/chat/completions' || (body.messages as unknown[]).length > 1) return undefined;
    const message = {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: GIVEN } }],
    };
    return {
      id: 'c',
      object: 'chat.completion',
      created: 1,
      model: 'policy',
      prompt_token_ids: [1],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      choices: [
        {
          index: 0,
          message,
          finish_reason: 'tool_calls',
          token_ids: [2],
          logprobs: { content: [{ token: 'x', logprob: -1, bytes: null, top_logprobs: [] }] },
        },
      ],
    };
  };
  const asked = (messages: string) =>
    `{"model":"m","max_tokens":50,"tools":[{"name":"f","input_schema":{}}],"messages":[${messages}]}`;
  const reply = await post(trial, 'messages', asked('{"role":"user","content":"x"}'));
  expect(reply).toContain(`"input":${GIVEN}`);
  // JavaScript clients write the numbers differently, and the call still counts as the same.
  const echo = JSON.stringify(JSON.parse(GIVEN));
  await post(
    trial,
    'messages',
    asked(
      `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":${echo}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"ok"}]}`,
    ),
  );
  const calls = await trial.calls();
  expect(calls[1]?.parentId).toBe(calls[0]?.id);
});

test('the arguments and the schema of a function in a Gemini request reach the engine as the agent wrote them', async () => {
  const trial = await gateway.trial();
  const sent = listen();
  const tools = `[{"functionDeclarations":[{"name":"f","parametersJsonSchema":${SCHEMA}}]}]`;
  const contents = [
    '{"role":"user","parts":[{"text":"x"}]}',
    `{"role":"model","parts":[{"functionCall":{"name":"f","args":${GIVEN}}}]}`,
    `{"role":"user","parts":[{"functionResponse":{"name":"f","response":${GIVEN}}}]}`,
  ];
  await post(
    trial,
    'v1beta/models/m:generateContent',
    `{"contents":[${contents.join()}],"tools":${tools},"generationConfig":{"temperature":1.0,"maxOutputTokens":5e1}}`,
  );
  expect(sent.at(-1)).toContain(SCHEMA);
  expect(sent.at(-1)?.split(JSON.stringify(GIVEN))).toHaveLength(3);
  expect(sent.at(-1)).toContain('"max_tokens":50');
});
