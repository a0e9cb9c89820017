import { expect, test } from 'vitest';
import { excerptOf } from './excerpt.ts';

test('an excerpt is a part around the first word, says where it is cut, and has no half of a character', () => {
  const parts = excerptOf(`${'🦊'.repeat(200)} Needle ${'🦊'.repeat(200)} needle`, ['needle']) ?? [];
  expect(parts.filter(({ isMatch }) => isMatch)).toEqual([{ text: 'Needle', isMatch: true }]);
  expect([parts[0]?.text, parts.at(-1)?.text]).toEqual(['… ', ' …']);
  const shown = parts.map(({ text }) => text).join('');
  expect(shown.isWellFormed()).toBe(true);
  expect(shown.length).toBeLessThan(340);
});

test('a text that lacks one of the words has no excerpt, and signs of expressions mean themselves', () => {
  expect(excerptOf('a.b', ['a.b', 'c'])).toBeNull();
  expect(excerptOf('axb', ['a.b'])).toBeNull();
  expect(excerptOf('f(x)[0]|{1}', ['(x)[0]|{1}'])).toEqual([
    { text: 'f', isMatch: false },
    { text: '(x)[0]|{1}', isMatch: true },
  ]);
});
