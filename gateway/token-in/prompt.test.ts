import { expect, test } from 'vitest';
import { continuePrompt } from './prompt.ts';

// 1 ends a turn, 9 is the tail that the template writes after it.
const closing = [1, 9];

test('what the sample lacks of the end of its turn is left out, or written twice', () => {
  const history = [5, 6, 7, 1, 9];
  const full = [...history, 2, 3];
  expect(continuePrompt({ recorded: [5, 8, 8, 1], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
  expect(continuePrompt({ recorded: [5, 8, 8], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
  expect(continuePrompt({ recorded: [5, 8, 8, 1, 9], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
});

test('a template that rewrites its history is continued all the same', () => {
  expect(continuePrompt({ recorded: [5, 8, 1], history: [5, 6, 7, 1, 9], full: [5, 6, 1, 9, 2], closing })).toBeNull();
  expect(continuePrompt({ recorded: [5, 8, 1], history: [5, 6, 7], full: [5, 6, 7, 2], closing })).toBeNull();
});
