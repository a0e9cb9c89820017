import { expect, test } from 'vitest';
import { textFrom } from './continue-text.ts';

test.each([
  ['a thought\nObservation', 'a thought', '\nObservation', '\nObservation'],
  ['a thought\nObservation: ', 'a thought', '\nObservation', '\nObservation: '],
  ['<|im_start|>assistant\n', 'assistant', '\n', '\n'],
  ['a\nb<|x|>c\n\n', 'a\nbc', '\n', '\n\n'],
  ['\n<|im_start|>assistant\nLet', '\nassistant\nL', 'e', 'et'],
  ['\n<|im_start|><|im_start|>system', '\nsyst', 'e', 'em'],
  ['a</s>b[INST]the', 'ab', 'th', 'the'],
  ['an [x] or [y]e', 'an [x] or [y]', 'e', 'e'],
  ['</div></s>e', '</div>', 'e', 'e'],
  ['a<b c>d e', 'ad ', 'e', null],
  ['\n', '', '\n', '\n'],
  ['xeee', 'x', 'ee', 'eee'],
  ['other', 'text', 'e', null],
])(
  'of the sampled text %j, what follows the visible text %j from the stop string %j on is %j',
  (said, text, by, rest) => {
    expect(textFrom(said, { text, by })).toBe(rest);
  },
);

test.each([
  [`${'<|x|>'.repeat(100)}${'<e'.repeat(1_000_000)}`, 'text', 'e'],
  [`${'[a]'.repeat(1_000_000)}zzzzzzzzzzzzzzzz`, 'text', '['],
  [`${'[a]'.repeat(1_000_000)}[`, '[a][a][a][a][a]b', '['],
])('a long sampled text full of its stop string is searched quickly: %.12s', { timeout: 30_000 }, (said, text, by) => {
  expect(textFrom(said, { text, by })).toBe(null);
});
