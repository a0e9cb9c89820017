import { expect, test } from 'vitest';
import { isVisibleText, showsPrompt } from './visible-text-oracle.ts';

const CUT = { text: 'template ', calls: [], after: null };
const tools = [{ type: 'function' }];

test.each(['<', '<tool', '<tool_call'])(
  'the visible-text oracle accepts a reply without text that its stream kept back as the beginning of a tool call (%s)',
  (kept) => {
    expect(
      isVisibleText({ ...CUT, asked: { tools, stream: true } }, `template ${kept}`, { parses: true, within: false }),
    ).toBe(true);
  },
);

test.each([
  ['in a plain reply', { tools }, 'template <', true],
  ['without tools', { stream: true }, 'template <', true],
  ['where nothing takes calls out', { tools, stream: true }, 'template <', false],
  ['that begins no call', { tools, stream: true }, 'template <to_', true],
  [
    'before another call',
    { tools, stream: true },
    'template <tool_call>{"name": "ls", "arguments": {}}</tool_call><',
    true,
  ],
])('the visible-text oracle rejects a reply whose text was lost %s', (_, asked, whole, parses) => {
  expect(isVisibleText({ ...CUT, asked }, whole, { parses, within: false })).toBe(false);
});

test('the visible-text oracle rejects a tool call that was streamed as text', () => {
  const whole = 'so <tool_call>{"name": "ls", "arguments": {}}</tool_call>';
  expect(
    isVisibleText({ ...CUT, text: whole, asked: { tools, stream: true } }, whole, { parses: true, within: false }),
  ).toBe(false);
});

test.each([
  ['crab\n🌱 bubble + Detenta', '\uFFFD\uFFFD bubble + Detenta \uFFFD', true],
  ['crab\n🌱 bubble + Deten', '\uFFFD\uFFFD bubble + Detenta \uFFFD', false],
  ['crab\n🌱 bubble + Detenta', '\uFFFD\uFFFD bubble + Detenta ', false],
])(
  'the visible-text oracle judges a reply cut within characters, seen as %j with ids for %j: %s',
  (text, whole, isSaid) => {
    expect(isVisibleText({ ...CUT, text, asked: {} }, whole, { parses: true, within: true })).toBe(isSaid);
  },
);

test.each([
  ['t', 'e', true],
  ['', 't', true],
  ['', 'e', false],
  ['text', 'e', false],
  ['', undefined, false],
  ['text 0: サク', undefined, true],
  ['0: サク', undefined, false],
])(
  'showsPrompt tells whether vLLM showed the prompt before a reply that is seen as %j with the stop string %j: %s',
  (text, stop, isShown) => {
    expect(showsPrompt({ text, asked: { stop } }, 'text 0: サク')).toBe(isShown);
  },
);
