import { expect, test } from 'vitest';
import { textFrom } from './continue-by-ids.ts';

test.each([
  ['a thought\nObservation', 'a thought', '\nObservation', '\nObservation'],
  ['a thought\nObservation: ', 'a thought', '\nObservation', '\nObservation: '],
  ['<|im_start|>assistant\n', 'assistant', '\n', '\n'],
  ['a\nb<|x|>c\n\n', 'a\nbc', '\n', null],
  ['\n', '', '\n', '\n'],
  ['xeee', 'x', 'ee', 'eee'],
  ['other', 'text', 'e', null],
])('of %j, seen as %j before the stop string %j, another rest is taken', (said, text, by, rest) => {
  expect(textFrom(said, { text, by })).toBe(rest);
});
