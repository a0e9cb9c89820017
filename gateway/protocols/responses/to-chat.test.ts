import { expect, test } from 'vitest';
import { requestOf } from '../../../tests/support/scenarios/protocol-request.ts';
import type { JsonObject } from '../../json.ts';
import { responses } from './responses.ts';

const parse = (body: JsonObject) => responses.parse(requestOf({ model: 'm', input: 'hi', ...body }));
const call = (id: string, name: string, given: string) => ({
  id,
  type: 'function',
  function: { name, arguments: given },
});
const calling = (call_id: string, name: string, given: string) => ({
  type: 'function_call',
  id: `fc_${call_id}`,
  call_id,
  name,
  arguments: given,
  status: 'completed',
});
const said = (text: string) => ({
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text, annotations: [] }],
});

test.each<[string, unknown, unknown[]]>([
  ['a text', 'hi', [{ role: 'user', content: 'hi' }]],
  ['a message without its type', [{ role: 'user', content: 'hi' }], [{ role: 'user', content: 'hi' }]],
  [
    'parts',
    [
      { role: 'developer', content: [{ type: 'input_text', text: 'a' }] },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'b' },
          { type: 'input_image', image_url: 'data:x', detail: 'low' },
        ],
      },
    ],
    [
      { role: 'developer', content: 'a' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'b' },
          { type: 'image_url', image_url: { url: 'data:x', detail: 'low' } },
        ],
      },
    ],
  ],
  [
    'one reply in four items',
    [
      {
        type: 'reasoning',
        id: 'rs',
        summary: [],
        content: [{ type: 'reasoning_text', text: 'hm' }],
        encrypted_content: null,
      },
      said('go'),
      calling('a', 'f', '{"x":1}'),
      calling('b', 'g', '{}'),
      { type: 'function_call_output', call_id: 'a', output: 'one' },
      { type: 'function_call_output', call_id: 'b', output: [{ type: 'input_text', text: 'two' }] },
    ],
    [
      {
        role: 'assistant',
        content: 'go',
        reasoning: 'hm',
        tool_calls: [call('a', 'f', '{"x":1}'), call('b', 'g', '{}')],
      },
      { role: 'tool', tool_call_id: 'a', content: 'one' },
      { role: 'tool', tool_call_id: 'b', content: 'two' },
    ],
  ],
  [
    'two replies in a row',
    [said('a'), said('b')],
    [
      { role: 'assistant', content: 'a' },
      { role: 'assistant', content: 'b' },
    ],
  ],
  [
    'a free text for a tool',
    [
      { type: 'custom_tool_call', call_id: 'a', name: 'patch', input: 'x "y"' },
      { type: 'custom_tool_call_output', call_id: 'a', output: 'ok' },
    ],
    [
      { role: 'assistant', content: null, tool_calls: [call('a', 'patch', '{"input":"x \\"y\\""}')] },
      { role: 'tool', tool_call_id: 'a', content: 'ok' },
    ],
  ],
])('the prompt made from a Responses request keeps %s', (_, input, expected) => {
  expect(parse({ input }).body.messages).toEqual(expected);
});

test('the settings of a Responses request reach the engine', () => {
  const { body, maxTokens, wants } = parse({
    instructions: 'be short',
    max_output_tokens: 9,
    temperature: 0.5,
    top_p: 0.9,
    stream: true,
    store: false,
    reasoning: { effort: 'low' },
    include: ['message.output_text.logprobs'],
    top_logprobs: 2,
    text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' }, strict: true } },
    parallel_tool_calls: false,
    tool_choice: { type: 'function', name: 'f' },
    tools: [
      { type: 'function', name: 'f', parameters: { type: 'object' }, strict: false },
      { type: 'web_search' },
      { type: 'namespace', name: 'ns', tools: [{ type: 'function', name: 'g' }] },
      {
        type: 'custom',
        name: 'patch',
        description: 'edits',
        format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
      },
    ],
  });
  expect([maxTokens, wants.logprobs]).toEqual([9, true]);
  expect(body).toMatchObject({
    messages: [
      { role: 'system', content: 'be short' },
      { role: 'user', content: 'hi' },
    ],
    max_tokens: 9,
    temperature: 0.5,
    top_p: 0.9,
    stream: true,
    reasoning_effort: 'low',
    logprobs: true,
    top_logprobs: 2,
    response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' }, strict: true } },
    parallel_tool_calls: false,
    tool_choice: { type: 'function', function: { name: 'f' } },
    tools: [
      { type: 'function', function: { name: 'f', parameters: { type: 'object' }, strict: false } },
      { type: 'function', function: { name: 'ns__g' } },
      {
        type: 'function',
        function: { name: 'patch', description: 'edits\n\nThe input must match this lark grammar:\nstart: "x"' },
      },
    ],
  });
  expect(body).not.toHaveProperty('store');
});

test('items, parts and tools of a Responses request that a model cannot be shown are left out and their paths recorded', () => {
  const search = { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'x' } };
  const compaction = { type: 'compaction', id: 'cmp_1', encrypted_content: 'gAAA' };
  const file = { type: 'input_file', file_id: 'f' };
  const output = { type: 'function_call_output', call_id: 'a', output: [{ type: 'input_text', text: 'one' }, file] };
  const { body, leftOut } = parse({
    input: [
      compaction,
      { role: 'user', content: [{ type: 'input_text', text: 'hi' }, file] },
      said('go'),
      search,
      calling('a', 'f', '{}'),
      output,
    ],
    tools: [{ type: 'web_search' }, { type: 'function', name: 'f' }],
    tool_choice: { type: 'web_search' },
  });
  expect(body).toMatchObject({
    messages: [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'go', tool_calls: [call('a', 'f', '{}')] },
      { role: 'tool', tool_call_id: 'a', content: 'one' },
    ],
    tools: [{ type: 'function', function: { name: 'f' } }],
    tool_choice: 'auto',
  });
  expect(leftOut).toEqual([
    { at: 'input.0', value: compaction },
    { at: 'input.1.content.1', value: file },
    { at: 'input.3', value: search },
    { at: 'input.5.output.1', value: file },
    { at: 'tools.0', value: { type: 'web_search' } },
  ]);
});

test('a Responses request that leaves the engine no tools reaches it without `tool_choice`', () => {
  expect(parse({ tools: [{ type: 'web_search' }], tool_choice: 'auto' }).body).not.toHaveProperty('tool_choice');
  expect(parse({ tools: [], tool_choice: 'auto' }).body).not.toHaveProperty('tools');
});

test.each<[JsonObject, RegExp]>([
  [{ input: 7 }, /^input/],
  [
    {
      input: [
        { role: 'user', content: 'x' },
        { type: 'function_call_output', call_id: 'a', output: 7 },
      ],
    },
    /^input\.1\.output: .*expected string or array/,
  ],
  [{ background: true }, /^background: is not served/],
  [{ conversation: 'c' }, /^conversation: .*previous_response_id/],
  [{ max_output_tokens: 0 }, /^max_output_tokens/],
])('a Responses request that cannot be answered is refused with the path of what is wrong: %j', (body, message) => {
  expect(() => parse(body)).toThrow(message);
});
