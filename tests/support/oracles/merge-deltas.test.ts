import { expect, test } from 'vitest';
import type { JsonObject } from '../../../gateway/json.ts';
import { mergeDeltas } from './merge-deltas.ts';

const chat = (content: string, end: JsonObject = {}): JsonObject => ({
  object: 'chat.completion.chunk',
  choices: [{ index: 0, delta: { content }, ...end }],
});
const block = (text: string, index = 0): JsonObject => ({
  type: 'content_block_delta',
  index,
  delta: { type: 'text_delta', text },
});
const part = (delta: string, item = 0): JsonObject => ({
  type: 'response.output_text.delta',
  output_index: item,
  delta,
});
const END = { finish_reason: 'length' };

test('mergeDeltas makes equal texts equal however they are divided, and keeps different texts different', () => {
  expect(mergeDeltas([chat('a'), chat('b c', END)])).toEqual(mergeDeltas([chat('a'), chat('b'), chat(' c', END)]));
  expect(mergeDeltas([block('a'), block('b')])).toEqual([block('ab')]);
  expect(mergeDeltas([part('a'), part('b'), part('c', 1)])).toEqual([part('ab'), part('c', 1)]);
  expect(mergeDeltas([block('a'), block('b', 1)])).toHaveLength(2);
  expect(mergeDeltas([chat('a', END)])).not.toEqual(mergeDeltas([chat('a')]));
  expect(mergeDeltas([chat('a'), chat('b')])).not.toEqual(mergeDeltas([chat('a'), chat('c')]));
});

test('mergeDeltas makes a tool call without arguments equal to one whose stream says `{}` in two parts', () => {
  const piece = (partial_json: string) => ({
    type: 'content_block_delta',
    index: 0,
    delta: { type: 'input_json_delta', partial_json },
  });
  const empty = [
    { type: 'content_block_start', index: 0 },
    { type: 'content_block_stop', index: 0 },
  ];
  const [start = {}, stop = {}] = empty;
  expect(mergeDeltas([start, piece('{'), piece('}'), stop])).toEqual(empty);
  expect(mergeDeltas([start, piece('{"a"'), piece(': 1}'), stop])).toEqual([start, piece('{"a": 1}'), stop]);
});
