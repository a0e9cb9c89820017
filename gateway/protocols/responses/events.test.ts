import { expect, test } from 'vitest';
import { requestOf } from '../../../tests/support/scenarios/protocol-request.ts';
import { Failure } from '../../failure.ts';
import { isObject, type JsonObject } from '../../json.ts';
import { eventsIn, typesOf } from '../../../tests/support/oracles/protocol-events.ts';
import { ResponseEvents } from './events.ts';
import { responses } from './responses.ts';

const CALL = '00000000-1111-2222-3333-444444444444';
const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'policy' };
const delta = (given: JsonObject, finish: string | null = null) => ({
  ...head,
  choices: [{ index: 0, delta: given, finish_reason: finish }],
});
const tool = (index: number, more: JsonObject, id?: string) => ({
  tool_calls: [{ index, ...(id ? { id, type: 'function' } : {}), function: more }],
});
const usage = { ...head, choices: [], usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } };
const OPENING = delta({ role: 'assistant', content: '' });
const ASKED = {
  model: 'm',
  input: 'x',
  tools: [
    { type: 'function', name: 'f' },
    { type: 'custom', name: 'patch' },
    { type: 'namespace', name: 'ns', tools: [{ type: 'function', name: 'g' }] },
  ],
};
const request = responses.parse(requestOf(ASKED));

function stream(chunks: JsonObject[]) {
  const writer = responses.writer(request, CALL);
  return eventsIn([OPENING, ...chunks, usage].map((chunk) => writer.write(chunk, 7)).join('') + writer.end());
}

const MESSAGE = [
  'output_item.added',
  'content_part.added',
  'output_text.delta',
  'output_text.done',
  'content_part.done',
  'output_item.done',
];
const CALLED = [
  'output_item.added',
  'function_call_arguments.delta',
  'function_call_arguments.done',
  'output_item.done',
];

test.each<[string, JsonObject[], string[], JsonObject[]]>([
  [
    'text',
    [delta({ content: 'a🦀' }, 'stop')],
    [...MESSAGE, 'completed'],
    [{ type: 'message', status: 'completed', content: [{ type: 'output_text', text: 'a🦀' }] }],
  ],
  ['nothing', [delta({}, 'length')], ['incomplete'], []],
  [
    'a text that is cut',
    [delta({ content: 'a' }), delta({}, 'length')],
    [...MESSAGE, 'incomplete'],
    [{ type: 'message', status: 'incomplete' }],
  ],
  [
    'a tool call that is cut',
    [
      delta({ content: 'a' }),
      delta(tool(0, { name: 'f', arguments: '{"x' }, 'a')),
      delta(tool(1, { name: 'f', arguments: '{' }, 'b')),
      delta({}, 'length'),
    ],
    [...MESSAGE, ...CALLED, ...CALLED, 'incomplete'],
    [
      { type: 'message', status: 'completed' },
      { type: 'function_call', call_id: 'a', arguments: '{"x', status: 'incomplete' },
      { type: 'function_call', call_id: 'b', arguments: '{', status: 'incomplete' },
    ],
  ],
  [
    'parts of two tool calls in turns',
    [
      delta(tool(0, { name: 'f', arguments: '{"x' }, 'a')),
      delta(tool(1, { name: 'f', arguments: '{"y":' }, 'b')),
      delta(tool(0, { arguments: '":1}' })),
      delta(tool(1, { arguments: '2}' })),
      delta({}, 'tool_calls'),
    ],
    [
      ...['output_item.added', 'function_call_arguments.delta', 'function_call_arguments.delta'],
      ...['function_call_arguments.done', 'output_item.done'],
      ...['output_item.added', 'function_call_arguments.delta', 'function_call_arguments.delta'],
      ...['function_call_arguments.done', 'output_item.done', 'completed'],
    ],
    [
      { type: 'function_call', call_id: 'a', arguments: '{"x":1}', status: 'completed' },
      { type: 'function_call', call_id: 'b', arguments: '{"y":2}', status: 'completed' },
    ],
  ],
  [
    'reasoning, text and parallel tool calls',
    [
      delta({ reasoning: 'hm' }),
      delta({ content: 'go' }),
      delta(tool(0, { name: 'f', arguments: '{"x":1}' }, 'a')),
      delta(tool(1, { name: 'ns__g', arguments: '{}' }, 'b')),
      delta({}, 'tool_calls'),
    ],
    [
      'output_item.added',
      'content_part.added',
      'reasoning_text.delta',
      'reasoning_text.done',
      'content_part.done',
      'output_item.done',
      ...MESSAGE,
      ...CALLED,
      ...CALLED,
      'completed',
    ],
    [
      { type: 'reasoning', content: [{ type: 'reasoning_text', text: 'hm' }] },
      { type: 'message' },
      { type: 'function_call', call_id: 'a', name: 'f', arguments: '{"x":1}' },
      { type: 'function_call', call_id: 'b', name: 'g', namespace: 'ns', arguments: '{}' },
    ],
  ],
  [
    'a free text for a tool',
    [
      delta(tool(0, { name: 'patch', arguments: '{"input": "x' }, 'a')),
      delta(tool(0, { arguments: '\\n"}' })),
      delta({}, 'tool_calls'),
    ],
    [
      'output_item.added',
      'custom_tool_call_input.delta',
      'custom_tool_call_input.done',
      'output_item.done',
      'completed',
    ],
    [{ type: 'custom_tool_call', call_id: 'a', name: 'patch', input: 'x\n' }],
  ],
])('a Responses stream of %s has the events that OpenAI sends', (_, chunks, types, output) => {
  const events = stream(chunks);
  expect(typesOf(events)).toEqual(['created', 'in_progress', ...types].map((type) => `response.${type}`));
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_event, i) => i));
  const response = events.at(-1)?.response;
  expect(response).toMatchObject({
    id: 'resp_00000000111122223333444444444444',
    model: 'policy',
    output,
    usage: { input_tokens: 7, output_tokens: 3, total_tokens: 10 },
  });
  expect(isObject(response) && response.incomplete_details).toEqual(
    types.includes('incomplete') ? { reason: 'max_output_tokens' } : null,
  );
  const done = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
  expect(isObject(response) && response.output).toEqual(done);
});

test('a plain Responses reply that its length ended has its last item incomplete, as the stream has it', () => {
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: '{"x' } };
  const message = { role: 'assistant', content: 'go', tool_calls: [call] };
  const whole = responses.whole(
    { ...head, choices: [{ message, finish_reason: 'length' }], usage: usage.usage },
    request,
    CALL,
  );
  const chunks = [delta({ content: 'go' }), delta(tool(0, { name: 'f', arguments: '{"x' }, 'a')), delta({}, 'length')];
  expect(whole).toEqual(stream(chunks).at(-1)?.response);
  expect(whole).toMatchObject({ output: [{ status: 'completed' }, { status: 'incomplete' }] });
});

test('a plain Responses reply equals the response at the end of its stream', () => {
  const chunks = [
    delta({ reasoning: 'hm' }),
    delta({ content: 'go' }),
    delta(tool(0, { name: 'patch', arguments: '{"input":"x"}' }, 'a')),
    delta({}, 'tool_calls'),
  ];
  const message = {
    role: 'assistant',
    content: 'go',
    reasoning: 'hm',
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'patch', arguments: '{"input":"x"}' } }],
  };
  const whole = responses.whole(
    { ...head, choices: [{ message, finish_reason: 'tool_calls' }], usage: usage.usage },
    request,
    CALL,
  );
  expect(whole).toEqual(stream(chunks).at(-1)?.response);
  expect(whole).toMatchObject({
    status: 'completed',
    instructions: null,
    tool_choice: 'auto',
    parallel_tool_calls: true,
  });
});

test('a Responses stream does not end before the engine’s last chunk, and its failure is an event of the protocol', () => {
  const writer = new ResponseEvents(CALL, {}, []);
  const events = [OPENING, delta({ content: 'a' }, 'stop'), usage].flatMap((chunk) => eventsIn(writer.write(chunk)));
  expect(typesOf(events)).not.toContain('response.output_item.done');
  const failed = eventsIn(writer.fail(new Failure(502, 'engine_cut', 'it broke off')));
  expect(failed).toMatchObject([
    { type: 'response.failed', response: { status: 'failed', error: { code: 'engine_cut', message: 'it broke off' } } },
    { type: 'error', code: 'engine_cut', message: 'it broke off' },
  ]);
});

test('a Responses chunk is written whole when it has more log-probabilities than a JavaScript function takes arguments', () => {
  const [choice] = delta({ content: 'x' }).choices;
  const content = Array(200_000).fill({ token: 'x', logprob: -1 });
  expect(() =>
    new ResponseEvents(CALL, ASKED, []).write({ ...head, choices: [{ ...choice, logprobs: { content } }] }),
  ).not.toThrow();
});
