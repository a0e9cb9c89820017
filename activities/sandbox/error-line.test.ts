import { expect, test } from 'vitest';
import { errorLine } from './error-line.ts';

const LANGGRAPH = `Traceback (most recent call last):
  File "/agents/react.py", line 30, in <module>
    graph.invoke({"messages": []})
openai.BadRequestError: Error code: 400 - the prompt is too long
During task with name 'model' and id '0b4f'`;
const NODE = `/agents/a.js:1
throw new TypeError('no model');
^

TypeError: no model
    at Object.<anonymous> (/agents/a.js:1:7)
    at node:internal/main/run_main_module:36:49

Node.js v24.21.0
`;

test.each([
  [
    'the exception, not the notes that a framework prints below it',
    LANGGRAPH,
    'openai.BadRequestError: Error code: 400 - the prompt is too long',
  ],
  ['the exception, not Node’s stack and version', NODE, 'TypeError: no model'],
  ['the last of several exceptions', 'KeyError: 1\n\nDuring handling …\n\nValueError: bad', 'ValueError: bad'],
  ['the last line where no exception is named', 'first\nno such file: a.txt\n\n', 'no such file: a.txt'],
  ['the beginning of a long line, and a sign that it goes on', 'x'.repeat(400), `${'x'.repeat(300)}…`],
  ['nothing where nothing was printed', '', ''],
])('the reason of a failed program is %s', (_, stderr, line) => {
  expect(errorLine(stderr)).toBe(line);
});
