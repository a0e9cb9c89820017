import { expect, test } from 'vitest';
import { requestOf } from '../../../tests/support/scenarios/protocol-request.ts';
import type { JsonObject } from '../../json.ts';
import { messages } from './messages.ts';

const parse = (body: JsonObject) => messages.parse(requestOf({ model: 'm', max_tokens: 9, ...body }));
const user = (content: unknown) => ({ role: 'user', content });
const assistant = (content: unknown) => ({ role: 'assistant', content });
const call = (id: string, name: string, given: string) => ({
  id,
  type: 'function',
  function: { name, arguments: given },
});

const PNG = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } };
const IMAGE = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };

test.each<[string, JsonObject, unknown[]]>([
  ['a text', { messages: [user('hi')] }, [user('hi')]],
  [
    'a block of text',
    { messages: [user([{ type: 'text', text: 'hi', cache_control: { type: 'ephemeral' } }])] },
    [user('hi')],
  ],
  [
    'several blocks',
    {
      messages: [
        user([
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ]),
      ],
    },
    [
      user([
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ]),
    ],
  ],
  [
    'a system prompt in blocks',
    {
      system: [
        { type: 'text', text: 'x-anthropic-billing-header: cch=1' },
        { type: 'text', text: 'be' },
        { type: 'text', text: ' short' },
      ],
      messages: [user('hi')],
    },
    [{ role: 'system', content: 'be short' }, user('hi')],
  ],
  ['an empty system prompt', { system: '', messages: [user('hi')] }, [user('hi')]],
  [
    'an image',
    { messages: [user([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } }])] },
    [user([{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }])],
  ],
  [
    'parallel tool calls and their results',
    {
      messages: [
        assistant([
          { type: 'thinking', thinking: 'hm', signature: 's' },
          { type: 'text', text: 'go' },
          { type: 'tool_use', id: 'a', name: 'f', input: { x: 1 } },
          { type: 'tool_use', id: 'b', name: 'g', input: {} },
        ]),
        user([
          { type: 'tool_result', tool_use_id: 'a', content: 'one' },
          {
            type: 'tool_result',
            tool_use_id: 'b',
            content: [
              { type: 'text', text: 'x' },
              { type: 'text', text: 'y' },
            ],
            is_error: true,
          },
          { type: 'text', text: 'and?' },
        ]),
      ],
    },
    [
      {
        role: 'assistant',
        content: 'go',
        reasoning: 'hm',
        tool_calls: [call('a', 'f', '{"x":1}'), call('b', 'g', '{}')],
      },
      { role: 'tool', tool_call_id: 'a', content: 'one' },
      { role: 'tool', tool_call_id: 'b', content: 'x\ny' },
      user('and?'),
    ],
  ],
  [
    'images in and beside results, each in its result',
    {
      messages: [
        user([
          { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'one' }, PNG] },
          { type: 'tool_result', tool_use_id: 'b', content: 'two' },
          PNG,
        ]),
        user([{ type: 'tool_result', tool_use_id: 'c', content: [PNG] }, PNG, { type: 'text', text: 'and?' }]),
      ],
    },
    [
      { role: 'tool', tool_call_id: 'a', content: [{ type: 'text', text: 'one' }, IMAGE] },
      { role: 'tool', tool_call_id: 'b', content: [{ type: 'text', text: 'two' }, IMAGE] },
      { role: 'tool', tool_call_id: 'c', content: [IMAGE] },
      user([IMAGE, { type: 'text', text: 'and?' }]),
    ],
  ],
  [
    'a tool that gave nothing',
    { messages: [user([{ type: 'tool_result', tool_use_id: 'a' }])] },
    [{ role: 'tool', tool_call_id: 'a', content: '' }],
  ],
  [
    'an assistant that said nothing',
    { messages: [assistant([]), assistant(''), assistant([{ type: 'redacted_thinking', data: 'x' }])] },
    [assistant(''), assistant(''), assistant('')],
  ],
])('the prompt made from a Messages request keeps %s', (_, body, expected) => {
  expect(parse(body).body.messages).toEqual(expected);
});

test('the settings of a Messages request reach the engine', () => {
  const tools = [
    { name: 'f', description: 'does', input_schema: { properties: {} }, cache_control: { type: 'ephemeral' } },
  ];
  const { body, maxTokens, stream } = parse({
    messages: [user('x')],
    tools,
    tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
    temperature: 0.5,
    top_p: 0.9,
    top_k: 4,
    stop_sequences: ['END'],
    stream: true,
    metadata: { user_id: 'u' },
    thinking: { type: 'enabled', budget_tokens: 2000 },
  });
  expect([maxTokens, stream]).toEqual([9, true]);
  expect(body).toEqual({
    model: 'm',
    messages: [user('x')],
    max_tokens: 9,
    temperature: 0.5,
    top_p: 0.9,
    top_k: 4,
    stop: ['END'],
    stream: true,
    tools: [
      {
        type: 'function',
        function: { name: 'f', description: 'does', parameters: { type: 'object', properties: {} } },
      },
    ],
    tool_choice: { type: 'function', function: { name: 'f' } },
    parallel_tool_calls: false,
  });
});

test('Messages content that the model cannot be shown is left out and its path recorded; the rest becomes the request that vLLM would make', () => {
  const pdf = { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' } };
  const search = { type: 'server_tool_use', id: 's', name: 'web_search', input: {} };
  const held = { type: 'image', source: { type: 'file', file_id: 'f' } };
  const own = { type: 'web_search_20250305', name: 'web_search' };
  const { body, leftOut } = parse({
    system: [{ type: 'text', text: 'short' }, pdf],
    messages: [
      assistant([search, { type: 'text', text: 'go' }, { type: 'tool_use', id: 'a', name: 'Read', input: [1] }]),
      user([{ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'text', text: 'PDF file read' }, pdf] }, held]),
      user([{ type: 'tool_result', tool_use_id: 'b', content: [{ type: 'tool_reference', tool_name: 'Grep' }] }]),
    ],
    tools: [own, { name: 'Read', input_schema: { properties: {}, type: 'object' }, defer_loading: true }],
    tool_choice: { type: 'tool', name: 'web_search' },
    output_format: { type: 'json_schema', schema: { type: 'object' } },
  });
  expect(body).toMatchObject({
    messages: [
      { role: 'system', content: 'short' },
      { role: 'assistant', content: 'go', tool_calls: [call('a', 'Read', '[1]')] },
      { role: 'tool', tool_call_id: 'a', content: 'PDF file read' },
      { role: 'tool', tool_call_id: 'b', content: [{ type: 'tool_reference', name: 'Grep' }] },
    ],
    tools: [{ type: 'function', function: { name: 'Read', defer_loading: true } }],
    tool_choice: 'auto',
    response_format: { type: 'json_schema', json_schema: { schema: { type: 'object' } } },
  });
  expect(leftOut).toEqual([
    { at: 'system.1', value: pdf },
    { at: 'messages.0.content.0', value: search },
    { at: 'messages.1.content.0.content.1', value: pdf },
    { at: 'messages.1.content.1', value: held },
    { at: 'tools.0', value: own },
  ]);
});

test('tools that system messages of a Messages request add and remove are in force as in vLLM', () => {
  const tools = ['a', 'b'].map((name) => ({ name, input_schema: {}, defer_loading: true }));
  const system = (...content: unknown[]) => ({ role: 'system', content });
  const { body } = parse({
    tools,
    messages: [
      user('x'),
      system(
        { type: 'tool_addition', tool: { type: 'tool_reference', name: 'a' } },
        { type: 'tool_removal', tool: { type: 'tool_reference', name: 'b' } },
      ),
      system({ type: 'tool_addition', tool: { type: 'tool_definition', definition: { name: 'c', input_schema: {} } } }),
    ],
  });
  const parameters = { type: 'object' };
  expect(body.tools).toEqual([
    { type: 'function', function: { name: 'a', parameters } },
    { type: 'function', function: { name: 'c', parameters } },
  ]);
  expect(body.messages).toEqual([user('x')]);
});

test.each([
  [{ type: 'auto' }, 'auto'],
  [{ type: 'any' }, 'required'],
  [{ type: 'none' }, 'none'],
])('`tool_choice` %j of a Messages request keeps its meaning in the request to the engine', (tool_choice, expected) => {
  const tools = [{ name: 'f', input_schema: { type: 'object' } }];
  expect(parse({ messages: [user('x')], tools, tool_choice }).body).toMatchObject({
    tool_choice: expected,
    parallel_tool_calls: true,
  });
  expect(parse({ messages: [user('x')], tool_choice }).body).not.toHaveProperty('tool_choice');
});

test.each<[JsonObject, RegExp]>([
  [{ messages: [] }, /^messages: at least one/],
  [{ messages: [user('x')], max_tokens: 0 }, /^max_tokens/],
  [{ messages: [user('x')], tools: [{ name: 'web_search' }] }, /^tools\.0\.input_schema: is missing/],
  [{ messages: [{ role: 'tool', content: 'x' }] }, /^messages\.0\.role/],
  [
    {
      messages: [
        user('x'),
        user([
          { type: 'text', text: 'a' },
          { type: 'text', text: 7 },
        ]),
      ],
    },
    /^messages\.1\.content\.1\.text: .*expected string/,
  ],
  [
    { messages: [user([{ type: 'tool_result', tool_use_id: 'a', content: [{ text: 'a' }] }])] },
    /^messages\.0\.content\.0\.content\.0\.type/,
  ],
  [{ messages: [user(7)] }, /^messages\.0\.content: .*expected string or array/],
])('a Messages request that cannot be answered is refused with the path of what is wrong: %j', (body, message) => {
  expect(() => parse(body)).toThrow(message);
});
