import { expect, test } from 'vitest';
import { KvRoom } from './kv-room.ts';
import { Placement } from './placement.ts';
import { preference } from './preference.ts';

const REPLICAS = ['a', 'b', 'c'].map((url) => ({ url }));

function place(loads: Record<string, number>) {
  const rooms = new Map(REPLICAS.map(({ url }) => [url, new KvRoom()]));
  const room = (url: string) => rooms.get(url) ?? new KvRoom();
  const placement = new Placement({ load: (url) => loads[url] ?? 0, room });
  const go = (trial: string, replicas = REPLICAS, behind = false): string | undefined => {
    const choice = placement.choose(trial, replicas, { tokens: 10, contended: behind, behind });
    if (choice === 'full') return choice;
    if (choice) placement.settle(trial, choice);
    return choice?.to.url;
  };
  /** Places the trial while all replicas are idle. */
  const begin = (trial: string) => {
    const loaded = { ...loads };
    for (const url of Object.keys(loads)) delete loads[url];
    const url = go(trial);
    Object.assign(loads, loaded);
    return url;
  };
  return { placement, go, begin, room };
}

/** Yields trials that prefer `url`. */
function* trialsOf(url: string): Generator<string, never> {
  for (let i = 0; ; i++) if (preference(`run/0.1/${i}`, REPLICAS)[0]?.url === url) yield `run/0.1/${i}`;
}
const trialOf = (url: string): string => trialsOf(url).next().value;

test.each([
  [{ a: 3, b: 0, c: 0 }, 'stays'],
  [{ a: 4, b: 0, c: 8 }, 'escapes'],
  [{ a: 20, b: 12, c: 12 }, 'escapes'],
  [{ a: 30, b: 22, c: 22 }, 'stays'],
  [{ a: 33, b: 22, c: 22 }, 'escapes'],
  [{ a: 0, b: 40, c: 0 }, 'stays'],
])('with %j calls in flight at the replicas, a trial that is placed on replica a %s', (loads, does) => {
  const { go, begin } = place(loads);
  const trial = trialOf('a');
  expect(begin(trial)).toBe('a');
  expect(go(trial) === 'a').toBe(does === 'stays');
});

test('trials that escape spread over several idle replicas', () => {
  const { go, begin } = place({ a: 40 });
  const trials = trialsOf('a');
  const refuges = Array.from({ length: 40 }, () => {
    const trial = trials.next().value;
    begin(trial);
    return go(trial);
  });
  for (const url of ['b', 'c']) expect(refuges.filter((each) => each === url).length).toBeGreaterThan(10);
});

test('a trial that escaped to another replica stays there when its first replica is idle again', () => {
  const loads: Record<string, number> = { a: 8 };
  const { go, begin, placement } = place(loads);
  const trial = trialOf('a');
  begin(trial);
  const refuge = go(trial);
  loads.a = 0;
  expect(go(trial)).toBe(refuge);
  expect(placement.escapes('a')).toBe(1);
});

test('a trial leaves the replica that it escaped to when that replica is loaded or gone, and goes back to one that returns', () => {
  const loads: Record<string, number> = { a: 8, b: 1 };
  const { go, begin, placement } = place(loads);
  const trial = trialOf('a');
  begin(trial);
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
  expect(go(trial)).toBe('b');
});

test('a trial begins at the least loaded replica, and stays there', () => {
  const loads: Record<string, number> = { a: 2, b: 1, c: 3 };
  const { go, placement } = place(loads);
  const trial = trialOf('a');
  expect(go(trial)).toBe('b');
  Object.assign(loads, { a: 0, b: 3 });
  expect(go(trial)).toBe('b');
  expect(placement.escapes('a')).toBe(0);
});

test('a trial whose replica has no room goes to one that has, and is told when none has', () => {
  const { go, room } = place({});
  const [trial, other] = [trialOf('a'), trialOf('b')];
  expect(go(trial)).toBe('a');
  const fill = (url: string) => {
    room(url).report(100, 0);
    room(url).enter(`filling ${url}`, 95);
  };
  fill('a');
  expect(go(trial)).not.toBe('a');
  fill('b');
  fill('c');
  expect([go(trial), go(other)]).toEqual(['full', 'full']);
});

test('behind waiting calls, only a trial that has room already goes on', () => {
  const { go, room } = place({});
  const [trial, other] = [trialOf('a'), trialOf('b')];
  for (const each of [trial, other]) expect(go(each)).toBe(each === trial ? 'a' : 'b');
  room('a').enter(trial, 10)();
  expect([go(trial, REPLICAS, true), go(other, REPLICAS, true)]).toEqual(['a', 'full']);
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

test('the gateway remembers the replicas of a limited number of trials and forgets that of the trial that was idle longest', () => {
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
