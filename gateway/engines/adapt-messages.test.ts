import { expect, test } from 'vitest';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useTokenGateway();
const MESSAGES = ['system', 'user', 'system', 'developer', 'user'].map((role, i) => ({ role, content: `${i}` }));

test.each([
  { strict: true, roles: ['system', 'user', 'user', 'user', 'user'] },
  { strict: false, roles: ['system', 'user', 'system', 'developer', 'user'] },
])(
  'a system message between turns keeps its position, and gets the role `user` if the template wants it first (strict: $strict)',
  async ({ strict, roles }) => {
    const asked: string[][] = [];
    gateway.toy.fault = (path) => (strict && path === '/tokenize' ? 400 : null);
    gateway.toy.before = ({ path, body }) =>
      void (path === '/v1/chat/completions' && asked.push(body.messages.map(({ role }) => role)));
    const trial = await gateway.trial();
    const first = await gateway.json(await trial.chat({ messages: MESSAGES }));
    const [{ message }] = first.choices as [{ message: unknown }];
    await trial.chat({ messages: [...MESSAGES, message, { role: 'user', content: 'more' }] });
    expect(asked).toEqual([roles]);
    const calls = await trial.calls();
    expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean']);
    expect(calls[0]?.request.messages).toEqual(MESSAGES);
  },
);

const IMAGE = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };
const FILE = { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' } };

test.each([true, false])(
  'the gateway records images and files, sends them only to an engine whose model takes them, and marks calls that show them as untrainable (text alone: %s)',
  async (textAlone) => {
    const asked: unknown[] = [];
    gateway.toy.fault = (path) => (textAlone && path === '/tokenize' ? 400 : null);
    gateway.toy.before = ({ path, body }) =>
      void (path === '/v1/chat/completions' && asked.push(body.messages.map(({ content }) => content)));
    gateway.toy.script = ['a cat', 'bye'].map((text) => ({ text }));
    const trial = await gateway.trial();
    const looking = [
      { role: 'user', content: [{ type: 'text', text: 'look' }, IMAGE] },
      { role: 'user', content: [FILE, { type: 'text', text: 'read' }] },
    ];
    const reply = await trial.chat({ messages: looking });
    expect(reply.status).toBe(200);
    const { choices } = await gateway.json(reply);
    const [{ message }] = choices as [{ message: unknown }];
    expect((await trial.chat({ messages: [...looking, message, { role: 'user', content: 'thanks' }] })).status).toBe(
      200,
    );
    expect(asked[0]).toEqual(textAlone ? ['look', 'read'] : looking.map(({ content }) => content));
    const calls = await trial.calls();
    expect(calls[0]?.request.messages).toEqual(looking);
    // The trainer computes text alone.
    const untrainable = textAlone ? null : 'media_shown';
    expect(calls.map((each) => each.untrainable)).toEqual([untrainable, untrainable]);
    if (textAlone) expect(calls.map(({ continuation }) => continuation)).toEqual([null, 'clean']);
    const counts = await gateway.metrics();
    expect([counts['trialgate_left_out_total{type="image"}'], counts['trialgate_left_out_total{type="file"}']]).toEqual(
      textAlone ? [1, 1] : [undefined, undefined],
    );
  },
);

const RESULTS = [
  { role: 'user', content: 'x' },
  {
    role: 'assistant',
    content: null,
    tool_calls: ['a', 'b'].map((id) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })),
  },
  { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'first' }, IMAGE] },
  { role: 'tool', tool_call_id: 'b', content: 'second' },
];
const AND = { role: 'user', content: 'and?' };

test.each([
  { takes: 'images in results', results: [[{ type: 'text', text: 'first' }, IMAGE], 'second', 'and?'] },
  { takes: 'images of users', results: ['first', 'second', [IMAGE, { type: 'text', text: 'and?' }]] },
  { takes: 'no images', results: ['first', 'second', 'and?'] },
])(
  'the results of one turn stay next to each other, before an engine that takes $takes',
  async ({ takes, results }) => {
    const asked: unknown[][] = [];
    let refuses = false;
    gateway.toy.before = ({ path, body }) => {
      const isOfTool = body.messages?.some(({ role }) => role === 'tool');
      refuses = path === '/tokenize' && (takes === 'no images' || (takes === 'images of users' && isOfTool));
      if (path === '/v1/chat/completions') asked.push(body.messages.slice(2).map(({ content }) => content));
    };
    gateway.toy.fault = () => (refuses ? 400 : null);
    const trial = await gateway.trial();
    for (const messages of [[...RESULTS, AND], RESULTS]) expect((await trial.chat({ messages })).status).toBe(200);
    const withoutUser = results.slice(0, 2);
    expect(asked).toEqual([results, takes === 'images of users' ? [...withoutUser, [IMAGE]] : withoutUser]);
    expect((await trial.calls())[0]?.request.messages).toEqual([...RESULTS, AND]);
  },
);

const AUDIO = { type: 'input_audio', input_audio: { data: 'AA==', format: 'wav' } };
const VIDEO = { type: 'video_url', video_url: { url: 'data:video/mp4;base64,AA==' } };

test.each([true, false])(
  'the gateway records audio, video and unknown parts, and sends them only to an engine whose model takes them (text alone: %s)',
  async (textAlone) => {
    const asked: { content?: unknown }[][] = [];
    gateway.toy.fault = (path) => (textAlone && path === '/tokenize' ? 400 : null);
    gateway.toy.before = ({ path, body }) => void (path === '/v1/chat/completions' && asked.push(body.messages));
    const trial = await gateway.trial();
    const messages = [
      ...[AUDIO, VIDEO, { type: 'hologram', hologram: 1 }].map((part) => ({
        role: 'user',
        content: [{ type: 'text', text: 'x' }, part],
      })),
      { role: 'user', content: [AUDIO] },
    ];
    expect((await trial.chat({ messages })).status).toBe(200);
    expect(asked[0]?.map(({ content }) => content)).toEqual(
      textAlone ? ['x', 'x', 'x', ''] : messages.map(({ content }) => content),
    );
    expect((await trial.calls())[0]?.request.messages).toEqual(messages);
    const counts = await gateway.metrics();
    expect(['audio', 'video', 'other_part'].map((type) => counts[`trialgate_left_out_total{type="${type}"}`])).toEqual(
      textAlone ? [2, 1, 1] : [undefined, undefined, undefined],
    );
  },
);

test('the gateway records custom tools of chat completions, leaves them out for the engine, and sends their calls as function calls', async () => {
  const asked: { messages: { tool_calls?: unknown }[]; tools?: unknown; tool_choice?: unknown }[] = [];
  gateway.toy.fault = (path) => (path === '/tokenize' ? 400 : null);
  gateway.toy.before = ({ path, body }) => void (path === '/v1/chat/completions' && asked.push(body));
  const trial = await gateway.trial();
  const custom = { type: 'custom', custom: { name: 'patch' } };
  const ls = { type: 'function', function: { name: 'ls' } };
  const messages = [
    { role: 'user', content: 'x' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'a', type: 'custom', custom: { name: 'patch', input: 'y' } }],
    },
    { role: 'tool', tool_call_id: 'a', content: 'ok' },
  ];
  for (const tools of [[custom, ls], [custom]])
    expect(
      (await trial.chat({ messages, tools, tool_choice: { type: 'custom', custom: { name: 'patch' } } })).status,
    ).toBe(200);
  expect(asked.map(({ tools, tool_choice }) => [tools, tool_choice])).toEqual([
    [[ls], 'auto'],
    [undefined, undefined],
  ]);
  expect(asked[0]?.messages[1]?.tool_calls).toEqual([
    { id: 'a', type: 'function', function: { name: 'patch', arguments: '{"input":"y"}' } },
  ]);
  expect((await trial.calls()).map(({ request }) => request.left_out)).toEqual(
    Array(2).fill([{ at: 'tools.0', value: custom }]),
  );
});

test('the gateway sends the names of the tools in place of tool references to an engine whose template does not expand these', async () => {
  const asked: unknown[] = [];
  gateway.toy.fault = (path) => (path === '/tokenize' ? 400 : null);
  gateway.toy.before = ({ path, body }) =>
    void (path === '/v1/chat/completions' && asked.push(body.messages.at(-1)?.content));
  const trial = await gateway.trial();
  const found = { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'tool_reference', tool_name: 'Grep' }] };
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'ToolSearch', input: {} }] },
    { role: 'user', content: [found] },
  ];
  expect(
    (await gateway.post(`/${trial.id}/v1/messages`, trial.key, { model: 'm', max_tokens: 9, messages })).status,
  ).toBe(200);
  expect(asked).toEqual(['Grep']);
});
