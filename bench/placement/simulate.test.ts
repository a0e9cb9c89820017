import { expect, test } from 'vitest';
import { KvCache } from './kv-cache.ts';
import { ours, withoutRoom } from './ours.ts';
import { drawSessions } from './sessions.ts';
import { simulate } from './simulate.ts';

const SMALL = { engines: 2, gateways: 1, slow: {}, joining: [] };
const sessions = drawSessions({ sessions: 24, groupSize: 4, turns: [12, 0.5], context: 60_000, seed: 1 });
const calls = sessions.reduce((sum, { turns }) => sum + turns.length, 0);

test('a cache forgets the blocks that were unused for longest, the last of a sequence first', () => {
  const cache = new KvCache(4);
  cache.take([1, 2, 3]);
  cache.give([1, 2, 3]);
  cache.take([10, 11]);
  expect([1, 2, 3, 10].map((key) => cache.has(key))).toEqual([true, true, false, true]);
  expect([cache.fits([20, 21]), cache.fits([20, 21, 22])]).toEqual([true, false]);
});

test('every call of every session ends, also where the cache is far too small', () => {
  for (const kvTokens of [1_000_000, 70_000]) {
    const scenario = { ...SMALL, name: 'any', sessions, open: 24, kvTokens };
    for (const policy of [ours, withoutRoom]) expect(simulate(scenario, policy, 1).calls).toBe(calls);
  }
});

test('a prefix that fits is found again by all but its new tokens', () => {
  const { hitRate, preemptions } = simulate(
    { ...SMALL, name: 'roomy', sessions, open: 24, kvTokens: 10_000_000 },
    ours,
    1,
  );
  expect(hitRate).toBeGreaterThan(0.85);
  expect(preemptions).toBe(0);
});

test('where trials would evict each other’s prefixes, those that wait for room keep theirs and end sooner', () => {
  const many = drawSessions({ sessions: 64, groupSize: 4, turns: [20, 0.5], context: 60_000, seed: 1 });
  const scenario = { ...SMALL, name: 'saturated', sessions: many, open: 64, kvTokens: 200_000 };
  const [waiting, thrashing] = [simulate(scenario, ours, 1), simulate(scenario, withoutRoom, 1)];
  expect(waiting.hitRate).toBeGreaterThan(thrashing.hitRate + 0.3);
  expect(waiting.wallSeconds).toBeLessThan(thrashing.wallSeconds);
});
