import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { settingsText } from './settings-text.ts';

test('the text of settings is YAML with the same settings, whatever they have', () => {
  const settings = {
    seed: 7,
    tasks: ['/a b/#1', { rows: 'x.jsonl', prompt: 'Say "{question}":\n\u2028\u0085\u007f: [a, b]' }],
    iterations: 3,
    model: 'null',
    teacher: null,
    optim: { lr: 1e-5, betas: [0.9, 0.999], eps: 1e-8 },
    sampling: {},
    reward_weights: { true: 1, 'a: b': -0.5, null: 0, '1': 2, Ünï: 3, '': 4 },
  };
  const text = settingsText(settings);
  expect(parse(text)).toEqual(settings);
  expect(text.split('\n').slice(0, 2)).toEqual(['model: "null"', expect.stringMatching(/^tasks: \["\/a b/)]);
  expect(text).toContain('optim:\n  lr: 0.00001\n');
});
