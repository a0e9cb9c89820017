import { expect, test } from 'vitest';
import { eachKind } from './each-kind.ts';

const KINDS = ['works', 'missing', 'fails', 'works too'] as const;

/** Measures all kinds, and cancels at `cancelAt`. Returns the kinds that were measured, and the lines. */
async function measured(cancelAt?: string) {
  const controller = new AbortController();
  const kinds: string[] = [];
  const reported: string[] = [];
  const { incomplete, hasFailed } = await eachKind(
    KINDS,
    {
      start: (kind) => (kind === 'missing' ? Promise.reject(new Error('it is not installed')) : Promise.resolve()),
      measure: async (kind) => {
        if (kind === cancelAt) controller.abort(new Error('interrupted'));
        controller.signal.throwIfAborted();
        if (kind === 'fails') throw new Error('its engine is gone');
        kinds.push(kind);
      },
    },
    { signal: controller.signal, report: (line) => reported.push(line) },
  );
  expect(reported).toEqual(incomplete);
  return { kinds, incomplete, hasFailed };
}

test('a kind that does not start or that fails leaves the others measured, and a line says why', async () => {
  expect(await measured()).toEqual({
    kinds: ['works', 'works too'],
    hasFailed: true,
    incomplete: ['missing is left out: it is not installed', 'fails ended early: its engine is gone'],
  });
});

test('what was measured before an interruption is kept', async () => {
  const { kinds, incomplete } = await measured('fails');
  expect(kinds).toEqual(['works']);
  expect(incomplete.slice(1)).toEqual(['fails ended early: interrupted', 'works too is not begun: interrupted']);
});
