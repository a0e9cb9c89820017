import { afterEach, expect, test, vi } from 'vitest';
import { WaitingLine } from './waiting-line.ts';

afterEach(() => void vi.useRealTimers());
const never = new AbortController().signal;
const LATER = Date.now() + 3_600_000;

/** Places that calls take and give back, and a line before them. */
function places(count: number) {
  const line = new WaitingLine();
  let free = count;
  const take = async () => {
    // Finding a place takes a while, as it does with engines.
    await Promise.resolve();
    if (free === 0) return null;
    free -= 1;
    return { give: () => ((free += 1), line.wake()) };
  };
  return { line, take, free: () => free };
}

test('every call that waits gets a place, although nobody looks again by itself', async () => {
  vi.useFakeTimers();
  let state = 5;
  const next = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below;
  const { line, take, free } = places(3);
  const order: string[] = [];
  const kept: (() => void)[] = [];
  const calls = Array.from({ length: 400 }, async (_, i) => {
    const agent = new AbortController();
    const leaves = i % 5 === 0;
    const waiting = line.wait(`trial ${next(7)}`, take, { signal: agent.signal, until: LATER });
    if (leaves) {
      for (let steps = next(50); steps > 0; steps--) await Promise.resolve();
      agent.abort(new Error('left'));
    }
    const place = await waiting.catch(() => null);
    if (!place) return;
    order.push(`call ${i}`);
    kept.push(place.give);
    for (let steps = next(9); steps > 0; steps--) await Promise.resolve();
    place.give();
  });
  line.wake();
  await Promise.all(calls);
  expect([order.length >= 320, line.length, free()]).toEqual([true, 0, 3]);
});

test('a call that waits in vain is told so, and the next one looks', async () => {
  const { line, take } = places(1);
  const place = await line.wait('a', take, { signal: never, until: LATER });
  const short = line.wait('b', take, { signal: never, until: Date.now() + 50 });
  const long = line.wait('c', take, { signal: never, until: LATER });
  expect(await short).toBeNull();
  place?.give();
  expect(await long).not.toBeNull();
  expect(line.length).toBe(0);
});

test('a call whose agent leaves is out of the line at once', async () => {
  const { line, take } = places(0);
  const agent = new AbortController();
  const waiting = line.wait('a', take, { signal: agent.signal, until: LATER });
  agent.abort(new Error('left'));
  expect(line.length).toBe(0);
  await expect(waiting).rejects.toThrow('left');
});

test('room that nobody announced is found', async () => {
  const { line } = places(0);
  let found = false;
  const waiting = line.wait('a', async () => (found ? 'place' : null), { signal: never, until: LATER });
  found = true;
  expect(await waiting).toBe('place');
});
