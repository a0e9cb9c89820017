import { expect, test } from 'vitest';
import { parseExact } from '../../core/exact-json.ts';
import { isObject } from '../../core/json.ts';
import { renderPrompt } from './render-prompt.ts';

const render = (prompt: Parameters<typeof renderPrompt>[0], json: string) => {
  const row = parseExact(json);
  return renderPrompt(prompt, isObject(row) ? row : {}, 'rows.jsonl:3');
};

test('a template has the row’s values in the places of its columns, and `{{` is a brace', () => {
  expect(render('Add {a} and {b}: {{"sum": …}}', '{"a": 1, "b": [2, 3]}')).toBe('Add 1 and [2,3]: {"sum": …}');
});

test('numbers keep their spelling, and a column may be called by a number', () => {
  expect(render('{0} {x}', '{"0": 1.50, "x": 12345678901234567890}')).toBe('1.50 12345678901234567890');
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

test('messages with parts, tool calls, results and keys of their own pass unchanged', () => {
  const messages = [
    { role: 'system', content: [{ type: 'text', text: 'Be brief.' }] },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'What?' },
        { type: 'image_url', image_url: { url: 'data:' } },
      ],
    },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'w', arguments: '{}' } }],
    },
    { role: 'tool', tool_call_id: 'c', content: 'sunny' },
    { role: 'user', name: 'me', content: 'And?' },
  ];
  expect(render('{prompt}', JSON.stringify({ prompt: messages }))).toEqual(messages);
});

const CONTENT = 'content is a text, or a list of parts with a `type`';
const ROLE = 'role is system, developer, user, assistant or tool';
test.each([
  ['from and value', [{ from: 'human', value: 'Hi' }], `[0].role: ${ROLE}: rename \`from\` to \`role\``],
  [
    'an unknown role',
    [
      { role: 'user', content: 'a' },
      { role: 'human', content: 'b' },
    ],
    `[1].role: ${ROLE}`,
  ],
  ['no content', [{ role: 'user', content: null }], `[0].content: ${CONTENT}`],
  ['parts without a type', [{ role: 'user', content: [{ text: 'a' }] }], `[0].content: ${CONTENT}`],
  ['a part without its text', [{ role: 'user', content: [{ type: 'text' }] }], '[0].content[0].text: '],
  ['a result without its call', [{ role: 'tool', content: 'a' }], '[0].tool_call_id: '],
  ['an empty reply', [{ role: 'assistant', content: null }], '[0]: an assistant’s message has content or tool_calls'],
  ['no message', [], ': there is no message'],
  ['a list of texts', ['a', 'b'], '[0]: '],
  ['an object', { question: 'a' }, ': '],
])('a column with %s is refused with the row and the field', (_, prompt, message) => {
  expect(() => render('{prompt}', JSON.stringify({ prompt }))).toThrow(`rows.jsonl:3: the column \`prompt\`${message}`);
});

test('messages within a text are refused, and the message says how to use them', () => {
  const json = JSON.stringify({ prompt: [{ role: 'user', content: 'Hello' }] });
  expect(() => render('Answer: {prompt}', json)).toThrow(
    'rows.jsonl:3: the column `prompt` has messages, which cannot stand within a text: let the prompt be `{prompt}` alone',
  );
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
