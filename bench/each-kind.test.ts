import { expect, test } from 'vitest';
import { TrialgateError } from '../core/errors.ts';
import { eachKind } from './each-kind.ts';

type Kind = 'works' | 'breaks a promise' | 'missing' | 'unanswering' | 'fails' | 'works too';

/** What a kind's start throws. */
const AT_START: Partial<Record<Kind, Error>> = {
  missing: new TrialgateError('missing_prerequisite', 'it is not installed'),
  unanswering: new Error('its engine gives no answer'),
};

/** Measures the kinds, and cancels at `cancelAt`. Returns the kinds that were measured, and the lines. */
async function measured(asked: Kind[], cancelAt?: Kind) {
  const controller = new AbortController();
  const kinds: string[] = [];
  const reported: string[] = [];
  const { incomplete, hasFailed } = await eachKind(
    asked,
    {
      start: async (kind) => {
        const error = AT_START[kind];
        if (error) throw error;
      },
      measure: async (kind) => {
        if (kind === cancelAt) controller.abort(new Error('interrupted'));
        controller.signal.throwIfAborted();
        if (kind === 'fails') throw new Error('its engine is gone');
        kinds.push(kind);
        if (kind === 'breaks a promise') return { failed: 1 };
        if (kind === 'works') return { failed: 0 };
      },
    },
    { signal: controller.signal, report: (line) => reported.push(line) },
  );
  expect(reported).toEqual(incomplete);
  return { kinds, incomplete, hasFailed };
}

test('a kind that is missing or that fails leaves the others measured, and a line says why', async () => {
  expect(await measured(['works', 'missing', 'fails', 'works too'])).toEqual({
    kinds: ['works', 'works too'],
    hasFailed: true,
    incomplete: ['missing is left out: it is not installed', 'fails ended early: its engine is gone'],
  });
});

test('a kind for which this machine lacks something is no failure, and one that cannot be started otherwise is one', async () => {
  expect(await measured(['missing', 'works'])).toMatchObject({ kinds: ['works'], hasFailed: false });
  expect(await measured(['unanswering', 'works'])).toEqual({
    kinds: ['works'],
    hasFailed: true,
    incomplete: ['unanswering did not start: its engine gives no answer'],
  });
});

test('a kind of which something that was tried failed is measured, and counts as a failure', async () => {
  expect(await measured(['breaks a promise', 'works'])).toEqual({
    kinds: ['breaks a promise', 'works'],
    hasFailed: true,
    incomplete: [],
  });
});

test('what was measured before an interruption is kept', async () => {
  const { kinds, incomplete } = await measured(['works', 'fails', 'works too'], 'fails');
  expect(kinds).toEqual(['works']);
  expect(incomplete).toEqual(['fails ended early: interrupted', 'works too is not begun: interrupted']);
});
