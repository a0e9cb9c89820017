import { expect, test } from 'vitest';
import { Failure } from '../../failure.ts';
import type { JsonObject } from '../../json.ts';
import { eventsIn, typesOf } from '../../../tests/support/oracles/protocol-events.ts';
import { MessageEvents } from './events.ts';
import { messageOf } from './from-chat.ts';

const CALL = '00000000-1111-2222-3333-444444444444';
const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'policy' };
const delta = (given: JsonObject, finish: string | null = null, stop_reason: unknown = null) => ({
  ...head,
  choices: [{ index: 0, delta: given, finish_reason: finish, stop_reason }],
});
const tool = (index: number, more: JsonObject, id?: string) => ({
  tool_calls: [{ index, ...(id ? { id, type: 'function' } : {}), function: more }],
});
const usage = { ...head, choices: [], usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } };
const OPENING = delta({ role: 'assistant', content: '' });

function stream(chunks: JsonObject[]) {
  const writer = new MessageEvents(CALL);
  return eventsIn([OPENING, ...chunks, usage].map((chunk) => writer.write(chunk, 7)).join('') + writer.end());
}

/** Assembles blocks as an SDK does. */
function blocksOf(events: ReturnType<typeof stream>): JsonObject[] {
  const blocks: (JsonObject & { said: string })[] = [];
  for (const event of events) {
    if (event.type === 'content_block_start') blocks.push({ ...(event.content_block as JsonObject), said: '' });
    const last = blocks.at(-1);
    const said = event.delta as JsonObject | undefined;
    if (event.type === 'content_block_delta' && last) {
      expect(event.index).toBe(blocks.length - 1);
      last.said += String(said?.text ?? said?.thinking ?? said?.partial_json ?? '');
    }
  }
  return blocks.map(({ type, name, id, said }) => ({ type, ...(name ? { name, id } : {}), said }));
}

test.each<[string, JsonObject[], JsonObject[], JsonObject]>([
  [
    'text',
    [delta({ content: 'Hel' }), delta({ content: 'lo 🦀' }, 'stop')],
    [{ type: 'text', said: 'Hello 🦀' }],
    { stop_reason: 'end_turn', stop_sequence: null },
  ],
  ['nothing', [delta({}, 'length')], [], { stop_reason: 'max_tokens', stop_sequence: null }],
  [
    'a stop string',
    [delta({ content: 'a' }, 'stop', 'END')],
    [{ type: 'text', said: 'a' }],
    { stop_reason: 'stop_sequence', stop_sequence: 'END' },
  ],
  [
    'a stop token',
    [delta({ content: 'a' }, 'stop', 151645)],
    [{ type: 'text', said: 'a' }],
    { stop_reason: 'end_turn', stop_sequence: null },
  ],
  [
    'parts of two tool calls in turns, with thinking and text between them',
    [
      delta(tool(0, { name: 'f', arguments: '{"x' }, 'a')),
      delta(tool(1, { name: 'g', arguments: '{"y":' }, 'b')),
      delta({ reasoning: 'hm', content: 'so' }),
      delta(tool(0, { arguments: '":{}' })),
      delta(tool(1, { arguments: '2}' })),
      delta(tool(0, { arguments: '}' })),
      delta({}, 'tool_calls'),
    ],
    [
      { type: 'tool_use', name: 'f', id: 'a', said: '{"x":{}}' },
      { type: 'thinking', said: 'hm' },
      { type: 'text', said: 'so' },
      { type: 'tool_use', name: 'g', id: 'b', said: '{"y":2}' },
    ],
    { stop_reason: 'tool_use', stop_sequence: null },
  ],
  [
    'reasoning, text and parallel tool calls',
    [
      delta({ reasoning: 'h' }),
      delta({ reasoning_content: 'm' }),
      delta({ content: 'go' }),
      delta(tool(0, { name: 'f', arguments: '' }, 'a')),
      delta(tool(0, { arguments: '{"x":' })),
      delta(tool(0, { arguments: '1}' })),
      delta(tool(1, { name: 'g', arguments: '{}' }, 'b')),
      delta({}, 'tool_calls'),
    ],
    [
      { type: 'thinking', said: 'hm' },
      { type: 'text', said: 'go' },
      { type: 'tool_use', name: 'f', id: 'a', said: '{"x":1}' },
      { type: 'tool_use', name: 'g', id: 'b', said: '{}' },
    ],
    { stop_reason: 'tool_use', stop_sequence: null },
  ],
  [
    'text within a tool call',
    [
      delta(tool(0, { name: 'f', arguments: '{' }, 'a')),
      delta({ content: 'later' }),
      delta(tool(0, { arguments: '}' })),
      delta({}, 'stop'),
    ],
    [
      { type: 'tool_use', name: 'f', id: 'a', said: '{}' },
      { type: 'text', said: 'later' },
    ],
    { stop_reason: 'tool_use', stop_sequence: null },
  ],
  [
    'a tool call that a stop string cut',
    [delta(tool(0, { name: 'f', arguments: '{"x":' }, 'a')), delta({}, 'stop', 'END')],
    [{ type: 'tool_use', name: 'f', id: 'a', said: '{"x":' }],
    { stop_reason: 'stop_sequence', stop_sequence: 'END' },
  ],
])('a Messages stream of %s has the events that Anthropic sends', (_, chunks, blocks, end) => {
  const events = stream(chunks);
  expect(blocksOf(events)).toEqual(blocks);
  const types = typesOf(events);
  expect([types[0], ...types.slice(-2)]).toEqual(['message_start', 'message_delta', 'message_stop']);
  expect(events.at(-2)).toMatchObject({ delta: end, usage: { input_tokens: 7, output_tokens: 3 } });
  expect(events[0]).toMatchObject({
    message: { id: 'msg_00000000111122223333444444444444', content: [], usage: { input_tokens: 7, output_tokens: 0 } },
  });
  // Only one block is open at a time.
  expect(
    types
      .filter((type) => type.startsWith('content'))
      .join(' ')
      .replaceAll(' content_block_delta', ''),
  ).toBe(blocks.map(() => 'content_block_start content_block_stop').join(' '));
});

test('a Messages stream does not end before the engine’s last chunk, and its failure is an event of the protocol', () => {
  const writer = new MessageEvents(CALL);
  const events = [OPENING, delta({ content: 'a' }, 'stop'), usage].flatMap((chunk) =>
    eventsIn(writer.write(chunk, null)),
  );
  expect(typesOf(events)).toEqual(['message_start', 'content_block_start', 'content_block_delta']);
  expect(eventsIn(writer.fail(new Failure(502, 'engine_cut', 'it broke off')))).toEqual([
    { type: 'error', error: { type: 'api_error', message: 'it broke off' } },
  ]);
});

test('a plain Messages reply has the same content as its stream', () => {
  const message = {
    role: 'assistant',
    content: 'go',
    reasoning: 'hm',
    tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{"x": 1}' } }],
  };
  const reply = {
    ...head,
    object: 'chat.completion',
    choices: [{ index: 0, message, finish_reason: 'tool_calls' }],
    usage: { ...usage.usage, prompt_tokens_details: { cached_tokens: 4 } },
  };
  expect(messageOf(reply, CALL)).toEqual({
    id: 'msg_00000000111122223333444444444444',
    type: 'message',
    role: 'assistant',
    model: 'policy',
    content: [
      { type: 'thinking', thinking: 'hm', signature: '00000000111122223333444444444444' },
      { type: 'text', text: 'go' },
      { type: 'tool_use', id: 'a', name: 'f', input: { x: 1 } },
    ],
    stop_reason: 'tool_use',
    stop_sequence: null,
    usage: { input_tokens: 3, cache_read_input_tokens: 4, output_tokens: 3 },
  });
  expect(messageOf({ ...reply, choices: [{ message: { content: '' }, finish_reason: 'length' }] }, CALL)).toMatchObject(
    { content: [{ type: 'text', text: '' }], stop_reason: 'max_tokens' },
  );
});
