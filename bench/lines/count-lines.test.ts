import { expect, test } from 'vitest';
import { countLines, blocksOf } from './count-lines.ts';

test('blank lines, comments and docstrings of Python are not counted, and strings that are code are', () => {
  const text = [
    '"""What the module does,',
    '',
    'in three lines."""',
    'import re',
    '',
    '# a comment',
    'PROMPT = """\\',
    'Answer.',
    '"""',
    'def f():',
    '    """Returns one."""',
    '    return g(f"""one""")  # code',
  ].join('\n');
  expect(countLines(text, true)).toBe(6);
});

test('in settings only blank lines and comments are not counted', () => {
  expect(countLines('#!/bin/sh\n\n# why\na: """\nb: 1 # one\n', false)).toBe(2);
});

test('a section has its own blocks of the language only, and a comment in them is no heading', () => {
  const blocks = ['```python', '# a', 'x = 1', '```', '```sh', 'run', '```', '```python', 'y = 2', '```'];
  const markdown = ['# Title', '```python', 'no = 0', '```', '## Start', 'text', ...blocks, '## Next', ...blocks];
  expect(blocksOf(markdown.join('\n'), '## Start', 'python')).toBe('# a\nx = 1\n\ny = 2\n');
});
