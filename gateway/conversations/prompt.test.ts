import { expect, test } from 'vitest';
import { continuePrompt } from './prompt.ts';

// 1 ends a turn, and 9 is the tail that the template writes after it.
const closing = [1, 9];

test('continuePrompt adds what a recorded turn lacks of its end, and never adds the end twice', () => {
  const history = [5, 6, 7, 1, 9];
  const full = [...history, 2, 3];
  expect(continuePrompt({ recorded: [5, 8, 8, 1], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
  expect(continuePrompt({ recorded: [5, 8, 8], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
  expect(continuePrompt({ recorded: [5, 8, 8, 1, 9], history, full, closing })).toEqual([5, 8, 8, 1, 9, 2, 3]);
});

test('continuePrompt does not continue recorded ids when the chat template rewrites their history', () => {
  expect(continuePrompt({ recorded: [5, 8, 1], history: [5, 6, 7, 1, 9], full: [5, 6, 1, 9, 2], closing })).toBeNull();
  expect(continuePrompt({ recorded: [5, 8, 1], history: [5, 6, 7], full: [5, 6, 7, 2], closing })).toBeNull();
});
