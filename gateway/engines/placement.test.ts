import { expect, test } from 'vitest';
import { Placement } from './placement.ts';
import { preference } from './preference.ts';

const REPLICAS = ['a', 'b', 'c'].map((url) => ({ url }));

function place(loads: Record<string, number>) {
  const placement = new Placement((url) => loads[url] ?? 0);
  const go = (trial: string, replicas = REPLICAS): string | undefined => {
    const choice = placement.choose(trial, replicas);
    if (choice?.from) placement.escape(trial, choice.from, choice.to);
    return choice?.to.url;
  };
  return { placement, go };
}

/** Yields trials that prefer `url`. */
function* trialsOf(url: string): Generator<string, never> {
  for (let i = 0; ; i++) if (preference(`run/0.1/${i}`, REPLICAS)[0]?.url === url) yield `run/0.1/${i}`;
}
const trialOf = (url: string): string => trialsOf(url).next().value;

test.each([
  [{ a: 7, b: 0, c: 0 }, 'stays'],
  [{ a: 8, b: 0, c: 8 }, 'escapes'],
  [{ a: 20, b: 12, c: 12 }, 'escapes'],
  [{ a: 30, b: 22, c: 22 }, 'stays'],
  [{ a: 33, b: 22, c: 22 }, 'escapes'],
  [{ a: 0, b: 40, c: 0 }, 'stays'],
])('with %j calls in flight at the replicas, a trial that is placed on replica a %s', (loads, does) => {
  expect(place(loads).go(trialOf('a')) === 'a').toBe(does === 'stays');
});

test('trials that escape spread over several idle replicas', () => {
  const { go } = place({ a: 40 });
  const trials = trialsOf('a');
  const refuges = Array.from({ length: 40 }, () => go(trials.next().value));
  for (const url of ['b', 'c']) expect(refuges.filter((each) => each === url).length).toBeGreaterThan(10);
});

test('a trial that escaped to another replica stays there when its first replica is idle again', () => {
  const loads: Record<string, number> = { a: 8 };
  const { go, placement } = place(loads);
  const trial = trialOf('a');
  const refuge = go(trial);
  loads.a = 0;
  expect(go(trial)).toBe(refuge);
  expect(placement.escapes('a')).toBe(1);
});

test('a trial leaves the replica that it escaped to when that replica is loaded or gone', () => {
  const loads: Record<string, number> = { a: 8, b: 1 };
  const { go, placement } = place(loads);
  const trial = trialOf('a');
  expect(go(trial)).toBe('c');
  Object.assign(loads, { a: 4, c: 12 });
  expect(go(trial)).toBe('b');
  expect([placement.escapes('a'), placement.escapes('c')]).toEqual([1, 1]);
  expect(
    go(
      trial,
      REPLICAS.filter(({ url }) => url !== 'b'),
    ),
  ).toBe('a');
  expect(go(trial)).toBe('a');
});

test('when a replica leaves, the trials of the other replicas stay; when it returns, its own trials come back', () => {
  const { go } = place({});
  const trials = Array.from({ length: 60 }, (_, i) => `run/0.2/${i}`);
  const before = trials.map((trial) => go(trial));
  const without = trials.map((trial) =>
    go(
      trial,
      REPLICAS.filter(({ url }) => url !== 'b'),
    ),
  );
  expect(without).not.toContain('b');
  for (const [i, url] of before.entries()) if (url !== 'b') expect(without[i]).toBe(url);
  expect(trials.map((trial) => go(trial))).toEqual(before);
});

test('the gateway remembers a limited number of escapes and forgets that of the trial that was idle longest', () => {
  const loads: Record<string, number> = { a: 8 };
  const { go } = place(loads);
  const trials = trialsOf('a');
  const [idle, busy] = [trials.next().value, trials.next().value];
  go(idle);
  go(busy);
  for (let i = 0; i < 9_999; i++) {
    go(trials.next().value);
    if (i === 5_000) go(busy);
  }
  loads.a = 0;
  expect(go(idle)).toBe('a');
  expect(go(busy)).not.toBe('a');
});
