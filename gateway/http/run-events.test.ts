import { expect, onTestFinished, test } from 'vitest';
import { sleep } from '../../core/sleep.ts';
import { TrialgateClient, type RunEvent } from '../../clients/typescript/client.ts';
import { ADMIN_KEY, IN_WORKERD, eventually, useGateway } from '../../tests/support/harness/gateways.ts';
import { changeRun, recordRun } from '../../tests/support/scenarios/recorded-run.ts';
import { RunEvents } from './run-events.ts';

/** Makes events over marks that the test gives. */
function eventsOver(options: Partial<ConstructorParameters<typeof RunEvents>[0]> = {}) {
  const asked: PromiseWithResolvers<string | null>[] = [];
  const events = new RunEvents({
    readMark: () => {
      const mark = Promise.withResolvers<string | null>();
      asked.push(mark);
      return mark.promise;
    },
    everyMs: 1,
    ...options,
  });
  onTestFinished(() => events.close());
  /** Answers the nth question for a mark. */
  const answer = async (n: number, mark: string | null) => {
    await eventually(() => asked.length >= n);
    asked[n - 1]?.resolve(mark);
  };
  return { events, asked, answer };
}

const textOf = async (next: Promise<IteratorResult<Uint8Array, undefined>>): Promise<string | null> => {
  const { value } = await next;
  return value === undefined ? null : new TextDecoder().decode(value);
};
const event = (name: string, id: string) => `event: ${name}\nid: ${id}\ndata: {}\n\n`;

test('fifty followers of a run are told of its state and of each change by one reading of the record', async () => {
  const { events, asked, answer } = eventsOver();
  const followers = Array.from({ length: 50 }, () => events.follow('first', null));
  const told = () => Promise.all(followers.map((follower) => textOf(follower.next())));
  const first = told();
  await answer(1, 'a');
  expect(new Set(await first)).toEqual(new Set([event('now', 'a')]));
  const second = told();
  await answer(2, 'a');
  await answer(3, 'b');
  expect(new Set(await second)).toEqual(new Set([event('changed', 'b')]));
  expect(asked.length).toBeLessThanOrEqual(4);
});

test('a follower that comes back is told at once whether something changed since its last event', async () => {
  const { events, answer } = eventsOver();
  const [same, behind] = [events.follow('first', 'a'), events.follow('first', 'older')];
  const told = [textOf(same.next()), textOf(behind.next())];
  await answer(1, 'a');
  expect(await Promise.all(told)).toEqual([event('now', 'a'), event('changed', 'a')]);
});

test('a follower of a run that rests is told now and then that its connection lives', async () => {
  const { events, answer } = eventsOver({ keepAliveMs: 0 });
  const follower = events.follow('first', 'a');
  const first = textOf(follower.next());
  await answer(1, 'a');
  await first;
  expect(await textOf(follower.next())).toBe(': keep-alive\n\n');
});

test('more followers than allowed are refused, until one has left', async () => {
  const { events } = eventsOver({ most: 1 });
  const follower = events.follow('first', null);
  expect(() => events.follow('second', null)).toThrow('too many pages');
  await follower.return?.();
  await follower.return?.();
  events.follow('second', null);
  expect(() => events.follow('third', null)).toThrow('too many pages');
});

test('events end when the record cannot be read, when the run is deleted and when the gateway stops, and begin anew', async () => {
  const { events, asked, answer } = eventsOver();
  const unreadable = textOf(events.follow('first', null).next());
  await eventually(() => asked.length === 1);
  asked[0]?.reject(new Error('the database is away'));
  expect(await unreadable).toBeNull();
  /** Follows until the record is read again. */
  const followAgain = async () => {
    for (const before = asked.length; ; await sleep(1)) {
      const follower = events.follow('first', null);
      const told = textOf(follower.next());
      if (asked.length > before) return { follower, told };
      expect(await told).toBeNull();
    }
  };
  const { told: deleted } = await followAgain();
  await answer(2, null);
  expect(await deleted).toBeNull();
  const { follower, told } = await followAgain();
  await answer(3, 'a');
  expect(await told).toBe(event('now', 'a'));
  const last = textOf(follower.next());
  events.close();
  asked[3]?.resolve('a');
  expect(await last).toBeNull();
});

test('after a reading that failed, those who come back do not make the record be read again before its rest', async () => {
  const { events, asked } = eventsOver({ everyMs: 3_600_000 });
  const first = textOf(events.follow('first', null).next());
  asked[0]?.reject(new Error('the query took too long'));
  expect(await first).toBeNull();
  expect(await textOf(events.follow('first', null).next())).toBeNull();
  expect(asked).toHaveLength(1);
});

/** Calls under way could go on for longer than the test. */
const gateway = useGateway({ drainMs: 3_600_000 });
const client = () => new TrialgateClient({ baseUrl: gateway.gateway.url, adminKey: ADMIN_KEY });

test.skipIf(IN_WORKERD)(
  'a client hears of a change of a run, goes on after a cut, and a gateway that stops does not wait for it',
  async () => {
    await recordRun(gateway.db, 'followed', { iterations: 1, groups: 1, size: 2 });
    const cut = new AbortController();
    const heard = client().runEvents('followed', { signal: cut.signal });
    const take = async (events: AsyncGenerator<RunEvent>): Promise<RunEvent> => (await events.next()).value;
    const changeOf = async (events: AsyncGenerator<RunEvent>): Promise<RunEvent> => {
      const heardNow = await take(events);
      return heardNow.name === 'changed' ? heardNow : changeOf(events);
    };
    const first = await take(heard);
    expect(first.name).toBe('now');
    const change = (reason: string) => changeRun(gateway.db, 'followed', { reason });
    await change('it waits');
    const second = await changeOf(heard);
    expect(second.id).not.toBe(first.id);
    cut.abort();
    await change('it waits for engines');
    const again = client().runEvents('followed', { after: second.id });
    expect((await changeOf(again)).id).not.toBe(second.id);
    const end = again.next();
    await gateway.restart();
    expect(await end).toEqual({ done: true, value: undefined });
  },
);

test('a client of an unknown run, one without the key, and one of a Worker are told why they hear nothing', async () => {
  await recordRun(gateway.db, 'known', { iterations: 1, groups: 1, size: 2 });
  const refused = (key: string, run: string) =>
    new TrialgateClient({ baseUrl: gateway.gateway.url, adminKey: key }).runEvents(run).next();
  await expect(refused(ADMIN_KEY, 'unknown')).rejects.toMatchObject({ status: 404 });
  await expect(refused('wrong', 'known')).rejects.toMatchObject({ status: 401 });
  if (IN_WORKERD) await expect(refused(ADMIN_KEY, 'known')).rejects.toMatchObject({ status: 501, code: 'no_events' });
});

test.skipIf(IN_WORKERD)('questions for the head of the events alone are no followers', async () => {
  await recordRun(gateway.db, 'heads', { iterations: 1, groups: 1, size: 2 });
  const ask = (method: string) =>
    fetch(`${gateway.gateway.url}/runs/heads/events`, { method, headers: { authorization: `Bearer ${ADMIN_KEY}` } });
  for (let i = 0; i <= 100; i++) expect((await ask('HEAD')).status).toBe(200);
  const followed = await ask('GET');
  expect(followed.status).toBe(200);
  await followed.body?.cancel();
});

test.skipIf(IN_WORKERD)('events end for a client that hears nothing for as long as it waits', async () => {
  await recordRun(gateway.db, 'silent', { iterations: 1, groups: 1, size: 2 });
  const heard: string[] = [];
  for await (const { name } of client().runEvents('silent', { silentMs: 100 })) heard.push(name);
  expect(heard.filter((name) => name !== 'now')).toEqual([]);
});
