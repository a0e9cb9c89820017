import { expect, test } from 'vitest';
import { boundedText } from './bounded-text.ts';

test('a text that is short enough is kept as it is', () => {
  expect(boundedText('abc', 3)).toBe('abc');
});

test('of a long text the beginning and the end are kept, and a line says how much is left out', () => {
  const text = `head${'x'.repeat(100)}${'y'.repeat(12)}`;
  expect(boundedText(text, 16)).toBe(`head\n[… 100 characters left out …]\n${'y'.repeat(12)}`);
});

test('a long text is never cut into half a character', () => {
  const text = boundedText('🤖'.repeat(50), 21);
  expect(text).toBe(text.toWellFormed());
});
