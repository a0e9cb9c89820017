import { expect, test } from 'vitest';
import { constraintsOf, relaxed } from './constraints.ts';

const ASKED = [{ role: 'user', content: 'look' }];
const tool = (strict?: boolean) => ({
  type: 'function',
  function: { name: 'ls', parameters: { type: 'object' }, ...(strict === undefined ? {} : { strict }) },
});
const SCHEMA = { type: 'object', properties: { name: { type: 'string' } } };
const BY_NAME = { type: 'function', function: { name: 'ls' } };
const AS_SCHEMA = `Answer with one JSON value that matches this JSON schema, and with nothing else: ${JSON.stringify(SCHEMA)}`;

test.each([
  [
    'a forced tool',
    { tools: [tool()], tool_choice: 'required' },
    { tools: [tool()], tool_choice: 'auto' },
    'Answer by calling the tool ls.',
  ],
  [
    'one of several tools',
    { tools: [tool(), { type: 'function', function: { name: 'cat' } }], tool_choice: 'required' },
    { tool_choice: 'auto' },
    'Answer by calling one of these tools: ls, cat.',
  ],
  [
    'a named tool',
    { tools: [tool()], tool_choice: BY_NAME },
    { tool_choice: 'auto' },
    'Answer by calling the tool ls.',
  ],
  [
    'a schema',
    { response_format: { type: 'json_schema', json_schema: { name: 'seen', schema: SCHEMA } } },
    {},
    AS_SCHEMA,
  ],
  [
    'a schema beside tools',
    { tools: [tool()], response_format: { type: 'json_schema', json_schema: { schema: SCHEMA } } },
    { tools: [tool()] },
    `When you answer without calling a tool: ${AS_SCHEMA}`,
  ],
  [
    'any JSON object',
    { response_format: { type: 'json_object' } },
    {},
    'Answer with one JSON object and with nothing else.',
  ],
  ["vLLM's own schema", { structured_outputs: { json: SCHEMA } }, {}, AS_SCHEMA],
  [
    'a choice',
    { structured_outputs: { choice: ['yes', 'no'] } },
    {},
    'Answer with one of these texts, and with nothing else: ["yes","no"]',
  ],
  [
    'a regular expression',
    { guided_regex: 'a+' },
    {},
    'Answer with a text that this regular expression matches, and with nothing else: a+',
  ],
])(
  '%s becomes a hint at the end of the prompt, and the request keeps no constraint on the sampling',
  (_what, fields, kept, hint) => {
    const free = JSON.parse(JSON.stringify(relaxed({ messages: ASKED, ...fields })));
    expect(free).toEqual({
      messages: [{ role: 'user', content: `look\n\n${hint}` }],
      ...('tools' in fields ? { tools: fields.tools } : {}),
      ...kept,
    });
    expect(constraintsOf(free, 'strict')).toEqual([]);
  },
);

test.each([
  [
    'parts of a message',
    [{ role: 'user', content: [{ type: 'text', text: 'look' }] }],
    [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'look' },
          { type: 'text', text: 'HINT' },
        ],
      },
    ],
  ],
  [
    "a tool's result",
    [
      { role: 'user', content: 'look' },
      { role: 'tool', content: 'a.txt' },
    ],
    [
      { role: 'user', content: 'look' },
      { role: 'tool', content: 'a.txt\n\nHINT' },
    ],
  ],
  [
    'a reply',
    [
      { role: 'user', content: 'look' },
      { role: 'assistant', content: 'I did' },
    ],
    [
      { role: 'user', content: 'look' },
      { role: 'assistant', content: 'I did' },
      { role: 'user', content: 'HINT' },
    ],
  ],
])('the hint that replaces a grammar comes after %s', (_what, messages, hinted) => {
  const free = JSON.stringify(relaxed({ messages, response_format: { type: 'json_object' } }).messages);
  expect(free.replace('Answer with one JSON object and with nothing else.', 'HINT')).toBe(JSON.stringify(hinted));
});

test('a reply that the request asks the model to continue stays the last message, and the hint goes before it', () => {
  const messages = [
    { role: 'user', content: 'look' },
    { role: 'assistant', content: '{' },
  ];
  const free = relaxed({ messages, continue_final_message: true, response_format: { type: 'json_object' } });
  expect(free.messages).toEqual([
    { role: 'user', content: 'look\n\nAnswer with one JSON object and with nothing else.' },
    messages[1],
  ]);
});

test('with hints, strict tools lose only their field `strict`, and the prompt gets no hint', () => {
  expect(relaxed({ messages: ASKED, tools: [tool(true)] })).toEqual({ messages: ASKED, tools: [tool()] });
});

test('with hints, a text completion keeps its grammar, because it has no messages to add a hint to', () => {
  const body = { prompt: 'look', structured_outputs: { json: {}, regex: 'a' } };
  expect(relaxed(body)).toBe(body);
});
