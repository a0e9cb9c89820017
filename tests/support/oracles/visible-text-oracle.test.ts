import { expect, test } from 'vitest';
import { isVisibleText, showsPrompt } from './visible-text-oracle.ts';

const CUT = { text: 'template ', calls: [], after: null };
const tools = [{ type: 'function' }];

test.each(['<', '<tool', '<tool_call'])('text that a stream kept back as the beginning of a call (%s) does not count as lost', (kept) => {
  expect(isVisibleText({ ...CUT, asked: { tools, stream: true } }, `template ${kept}`, { parses: true, within: false })).toBe(true);
});

test.each([
  ['in a plain reply', { tools }, 'template <', true],
  ['without tools', { stream: true }, 'template <', true],
  ['where nothing takes calls out', { tools, stream: true }, 'template <', false],
  ['that begins no call', { tools, stream: true }, 'template <to_', true],
  ['before another call', { tools, stream: true }, 'template <tool_call>{"name": "ls", "arguments": {}}</tool_call><', true],
])('a text that was lost %s counts as lost', (_, asked, whole, parses) => {
  expect(isVisibleText({ ...CUT, asked }, whole, { parses, within: false })).toBe(false);
});

test('a call that is streamed as text does not count as a call', () => {
  const whole = 'so <tool_call>{"name": "ls", "arguments": {}}</tool_call>';
  expect(isVisibleText({ ...CUT, text: whole, asked: { tools, stream: true } }, whole, { parses: true, within: false })).toBe(false);
});

test.each([
  ['crab\n🌱 bubble + Detenta', '\uFFFD\uFFFD bubble + Detenta \uFFFD', true],
  ['crab\n🌱 bubble + Deten', '\uFFFD\uFFFD bubble + Detenta \uFFFD', false],
  ['crab\n🌱 bubble + Detenta', '\uFFFD\uFFFD bubble + Detenta ', false],
])('of a reply that begins and ends within characters, seen as %j, its ids %j: %s', (text, whole, isSaid) => {
  expect(isVisibleText({ ...CUT, text, asked: {} }, whole, { parses: true, within: true })).toBe(isSaid);
});

test.each([
  ['t', 'e', true],
  ['', 't', true],
  ['', 'e', false],
  ['text', 'e', false],
  ['', undefined, false],
  ['text 0: サク', undefined, true],
  ['0: サク', undefined, false],
])('a prompt that vLLM shows again before its reply, seen as %j until %j: %s', (text, stop, isShown) => {
  expect(showsPrompt({ text, asked: { stop } }, 'text 0: サク')).toBe(isShown);
});
