import { expect, test } from 'vitest';
import { parseExact } from '../../core/exact-json.ts';
import { isObject } from '../../core/json.ts';
import { renderPrompt } from './render-prompt.ts';

const render = (prompt: Parameters<typeof renderPrompt>[0], json: string) => {
  const row = parseExact(json);
  return renderPrompt(prompt, isObject(row) ? row : {}, 'rows.jsonl:3');
};

test('a template has the row’s values in the places of its columns, and `{{` is a brace', () => {
  expect(render('Add {a} and {b}: {{"sum": …}}', '{"a": 1, "b": [2, 3]}')).toEqual([
    { role: 'user', content: 'Add 1 and [2,3]: {"sum": …}' },
  ]);
});

test('numbers keep their spelling, and a column may be called by a number', () => {
  expect(render('{0} {x}', '{"0": 1.50, "x": 12345678901234567890}')).toEqual([
    { role: 'user', content: '1.50 12345678901234567890' },
  ]);
});

test('a prompt can be several messages, each a template', () => {
  const prompt = [
    { role: 'system' as const, content: 'Be short.' },
    { role: 'user' as const, content: '{q}' },
  ];
  expect(render(prompt, '{"q": "Why?"}')).toEqual([
    { role: 'system', content: 'Be short.' },
    { role: 'user', content: 'Why?' },
  ]);
});

test('a column of messages alone is used as it is', () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  expect(render('{prompt}', JSON.stringify({ prompt: messages }))).toEqual(messages);
});

test.each([
  [
    'a column that does not exist',
    '{question}',
    '{"q": 1, "answer": 2}',
    'names the column `question`, which does not exist; there are q, answer',
  ],
  ['a column without a value', '{q}', '{"q": null}', 'names the column `q`, which is empty'],
  ['an empty prompt', '{q}', '{"q": " "}', 'the prompt is empty'],
])('%s is refused with the file and the line', (_, prompt, json, message) => {
  expect(() => render(prompt, json)).toThrow(
    `rows.jsonl:3: ${message.startsWith('the') ? '' : 'the prompt '}${message}`,
  );
});
