import { expect, test } from 'vitest';
import { engineWait, usualOf, type TimedCall, type Usual } from './engine-wait.ts';

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
/** A call that was served well: 100 tokens a second after 0.1 s. */
const served = (given: Partial<TimedCall> = {}) => call({ first: 0.1, end: 100, tokens: 10_000, ...given });
/** A pool that makes 100 tokens a second, and the first one in 0.25 s. */
const usual: Usual = { token: 0.01, firstToken: 0.25, wholeReply: 10, wholeTokens: 1000, streamsWhole: false };
const UNKNOWN: Usual = { token: null, firstToken: null, wholeReply: null, wholeTokens: null, streamsWhole: false };
const wait = (own: TimedCall[], others: TimedCall[] = [], given: Usual = usual, now = 100) =>
  engineWait(own, { others, usual: given, now });

test.each<[string, TimedCall[], TimedCall[], number]>([
  ['a call waits from the time by which its first token usually comes', [call({})], [], 99],
  ['a call that was cut before its first token has waited until then', [call({ end: 40 })], [], 39],
  ['a call does not wait while its tokens come as usual', [call({ first: 30, end: 31, tokens: 100 })], [], 29],
  ['tokens that come far more slowly than usual are waited for', [call({ first: 0, end: 50, tokens: 100 })], [], 46],
  [
    'a reply that is not streamed waits for what is beyond usual',
    [call({ stream: false, end: 50, tokens: 100 })],
    [],
    46,
  ],
  ['a stream that came whole is such a reply', [call({ first: 50, end: 50, tokens: 100 })], [], 46],
  ['a reply that is not streamed waits once it takes far longer than usual', [call({ stream: false })], [], 60],
  ['parallel calls wait once', [call({}), call({ start: 20 })], [], 99],
  ['waits after each other add up', [call({ end: 10 }), call({ start: 50, end: 60 })], [], 18],
  ['a call that a grammar binds does not wait: it may be slow by itself', [call({ isConstrained: true })], [], 0],
  ['a wait counts while others wait for the same engine', [call({})], [call({ start: 40, end: 70 })], 99],
  ['a wait does not count while the engine serves others', [call({})], [served({ first: 0 })], 0],
  ['it does before and after', [call({})], [served({ start: 40, first: 40.1, end: 60, tokens: 2000 })], 79],
  ['a call that a grammar binds proves nothing of others’ waits', [call({})], [call({ isConstrained: true })], 99],
  ['an engine is not excused by another one that serves', [call({})], [served({ engine: 'other', first: 0 })], 99],
  ['a call without an engine competes with all', [call({ engine: null })], [served({ first: 0 })], 0],
])('%s', (_, own, others, seconds) => {
  expect(wait(own, others).seconds).toBeCloseTo(seconds);
});

test('a wait is shared when other trials had at least half of it', () => {
  expect(wait([call({})]).isShared).toBe(false);
  expect(wait([call({})], [call({ end: 40 })]).isShared).toBe(false);
  expect(wait([call({})], [call({ end: 60 })]).isShared).toBe(true);
});

test('a pool that has answered nobody makes its trials wait all the time', () => {
  expect(wait([call({ first: 0, tokens: 20 })], [], UNKNOWN).seconds).toBe(100);
  expect(wait([call({})], [], UNKNOWN).seconds).toBe(100);
});

test('a pool that is slow as a whole makes its trials wait beyond five seconds for a first token, and half a second for each token', () => {
  const slow: Usual = { token: 5, firstToken: 60, wholeReply: 500, wholeTokens: 100, streamsWhole: false };
  expect(wait([call({ first: 5, end: 100, tokens: 20 })], [], slow).seconds).toBe(85);
  expect(wait([call({})], [], slow).seconds).toBe(95);
  // A reply that comes whole has its tokens only when it has ended.
  expect(wait([call({ stream: false })], [call({ stream: false })], slow)).toEqual({ seconds: 50, isShared: true });
});

test('where streams come whole, one waits only once it takes far longer than such replies do', () => {
  const long = served({ first: 20, end: 20, tokens: 2000 });
  const whole = usualOf([long, long, long]);
  expect(whole).toEqual({ token: 0.01, firstToken: null, wholeReply: 20, wholeTokens: 2000, streamsWhole: true });
  expect(wait([call({ end: 79 })], [], whole).seconds).toBe(0);
  expect(wait([call({})], [], whole).seconds).toBe(20);
});

test('what is usual is read from replies with tokens, without grammars', () => {
  const calls = [served(), served({ isConstrained: true, first: 90 }), call({ first: 50, end: 50, tokens: 1 })];
  const { token, firstToken, ...rest } = usualOf(calls);
  expect([token, firstToken]).toEqual([expect.closeTo(0.00999, 5), 0.1]);
  expect(rest).toEqual({ wholeReply: null, wholeTokens: null, streamsWhole: false });
  expect(usualOf([])).toEqual(UNKNOWN);
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

test('an agent that has the engine alone gains no time while more than eight of its calls run at once', () => {
  const many = (count: number) => Array.from({ length: count }, () => call({ end: 50 }));
  expect(wait(many(8)).seconds).toBe(49);
  expect(wait(many(9)).seconds).toBe(0);
});
