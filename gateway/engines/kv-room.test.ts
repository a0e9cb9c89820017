import { expect, test } from 'vitest';
import { KvRoom } from './kv-room.ts';

/** A room of 100 tokens, in which calls take 20, and a clock in seconds. */
function room() {
  let now = 0;
  const kv = new KvRoom(() => now * 1000);
  kv.report(100, 0);
  const use = (trial: string, tokens = 20) => kv.enter(trial, tokens);
  return { kv, use, wait: (seconds: number) => void (now += seconds) };
}

test('an engine of unknown size has room for everything', () => {
  const kv = new KvRoom();
  kv.enter('a', 1e9);
  expect(kv.has('b', 1e9, true)).toBe(true);
});

test('trials that ended are forgotten although the engine has room for all', () => {
  let now = 0;
  const kv = new KvRoom(() => now * 1000);
  for (; now < 1_000; now++) kv.enter(`trial ${now}`, 10)();
  expect(kv.size).toBeLessThan(100);
});

test('an empty engine has room for a call that is larger than its cache, and one in use has not', () => {
  const { kv, use } = room();
  expect(kv.has('a', 1_000, false)).toBe(true);
  const end = use('a');
  expect(kv.has('b', 1_000, false)).toBe(false);
  end();
  expect(kv.has('b', 1_000, false)).toBe(true);
});

test('a trial keeps its room between its calls, and loses it when it is idle for long', () => {
  const { kv, use, wait } = room();
  use('a', 60);
  use('b', 30)();
  expect([kv.has('c', 20, false), kv.isHeldBy('b')]).toEqual([false, true]);
  wait(30);
  expect([kv.has('c', 20, false), kv.isHeldBy('b')]).toEqual([true, false]);
});

test('when trials grow beyond the cache, those that came last give up their room', () => {
  const { kv, use } = room();
  use('a', 40)();
  use('b', 30)();
  use('c', 30)();
  use('d', 60);
  expect(kv.has('a', 40, false)).toBe(true);
  expect(['a', 'b', 'c'].map((trial) => kv.isHeldBy(trial))).toEqual([true, false, false]);
});

test('a trial that grows beyond the cache and came last waits itself', () => {
  const { kv, use } = room();
  use('a', 60);
  use('b', 30)();
  expect(kv.has('b', 50, false)).toBe(false);
  expect(kv.isHeldBy('b')).toBe(false);
});

test('a trial that has held room for long gives it up if others wait, and only then', () => {
  const { kv, use, wait } = room();
  use('busy', 55);
  const keep = () => use('a', 20)();
  keep();
  for (let i = 0; i < 16; i++) {
    wait(20);
    keep();
  }
  expect(kv.has('a', 20, false)).toBe(true);
  expect(kv.has('a', 20, true)).toBe(false);
  expect(kv.isHeldBy('a')).toBe(false);
});

test('each call of a trial that has several under way needs room of its own', () => {
  const { kv, use } = room();
  for (let i = 0; i < 4; i++) use('a');
  expect([kv.has('a', 20, false), kv.has('a', 21, false)]).toEqual([true, false]);
});

test('what the engine reports beyond this process’s calls belongs to other gateways, until the report is old', () => {
  const { kv, wait } = room();
  kv.report(100, 45);
  expect([kv.has('a', 5, false), kv.has('a', 10, false), kv.has('a', 11, false)]).toEqual([true, true, false]);
  wait(5);
  expect(kv.has('a', 100, false)).toBe(true);
});

test('all tokens are given back, whatever the order of calls and their ends', () => {
  const { kv, use, wait } = room();
  let state = 7;
  const next = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below;
  const open: (() => void)[] = [];
  for (let i = 0; i < 5_000; i++) {
    const trial = `trial ${next(20)}`;
    const tokens = 1 + next(40);
    if (next(2) === 0 && kv.has(trial, tokens, next(2) === 0)) open.push(use(trial, tokens));
    else {
      const end = open.splice(next(open.length + 1), 1)[0];
      end?.();
      end?.();
    }
    if (next(10) === 0) wait(next(20));
    if (next(50) === 0) kv.leave(trial);
  }
  for (const end of open) end();
  wait(31);
  const probe = use('one', 10);
  expect([kv.has('whole', 90, false), kv.has('more', 91, false)]).toEqual([true, false]);
  probe();
});
