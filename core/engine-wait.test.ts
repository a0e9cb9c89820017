import { expect, test } from 'vitest';
import { engineWait, type TimedCall } from './engine-wait.ts';

const call = (given: Partial<TimedCall>): TimedCall => ({
  engine: 'e',
  start: 0,
  first: null,
  end: null,
  tokens: 0,
  stream: true,
  isConstrained: false,
  ...given,
});
/** A call that got its tokens at once. */
const served = (given: Partial<TimedCall> = {}) => call({ first: 0.1, end: 100, tokens: 10_000, ...given });
const wait = (own: TimedCall[], others: TimedCall[] = [], perToken: number | null = 0.01, now = 100) =>
  engineWait(own, { others, perToken, now });

test.each<[string, TimedCall[], TimedCall[], number]>([
  ['a call whose first token has not come waits', [call({})], [], 100],
  ['a call that was cut before its first token has waited until then', [call({ end: 40 })], [], 40],
  [
    'a call waits until its first token, and not while its tokens come as usual',
    [call({ first: 30, end: 31, tokens: 100 })],
    [],
    30,
  ],
  ['tokens that come far more slowly than usual are waited for', [call({ first: 0, end: 50, tokens: 100 })], [], 46],
  [
    'a reply that is not streamed waits for what is beyond usual',
    [call({ stream: false, end: 50, tokens: 100 })],
    [],
    46,
  ],
  ['parallel calls wait once', [call({}), call({ start: 20 })], [], 100],
  ['waits after each other add up', [call({ end: 10 }), call({ start: 50, end: 60 })], [], 20],
  ['a call that a grammar binds does not wait: it may be slow by itself', [call({ isConstrained: true })], [], 0],
  ['a wait counts while others wait for the same engine', [call({})], [call({ start: 40, end: 70 })], 30],
  ['a wait alone, while the engine serves others, is the call’s own doing', [call({})], [served({ first: 0 })], 0],
  [
    'a stuck engine is not excused by another one that serves',
    [call({})],
    [served({ engine: 'other', first: 0 })],
    100,
  ],
  ['a call without an engine competes with all', [call({ engine: null })], [served({ first: 0 })], 0],
])('%s', (_, own, others, seconds) => {
  expect(wait(own, others).seconds).toBeCloseTo(seconds);
});

test('a wait that others shared is told apart from one that only this trial had', () => {
  expect(wait([call({})])).toMatchObject({ isShared: false });
  expect(wait([call({})], [call({})])).toMatchObject({ isShared: true });
});

test('a pool that has answered nobody makes its trials wait all the time, and one that is slow as a whole for more than half a second a token', () => {
  const slow = call({ first: 0, end: 100, tokens: 20 });
  expect(wait([slow], [], null).seconds).toBe(100);
  expect(wait([slow], [], 5).seconds).toBe(90);
});

test.each([
  ['long prompts', [call({ end: 60, first: 59, tokens: 10 })]],
  [
    'many parallel calls',
    Array.from({ length: 50 }, (_, i) => call({ start: i, first: i + 10, end: i + 11, tokens: 10 })),
  ],
  ['replies that no model can make faster', [call({ first: 0, end: 90, tokens: 9000 })]],
  ['grammars', [call({ isConstrained: true, end: 90 })]],
])('an agent that makes its own calls slow by %s gains no time while the engine serves others', (_, own) => {
  const others = Array.from({ length: 20 }, (_each, i) =>
    served({ start: 5 * i, first: 5 * i + 0.05, end: 5 * i + 5, tokens: 500 }),
  );
  expect(wait(own, others).seconds).toBeLessThan(2);
});
