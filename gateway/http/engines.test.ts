import { eq } from 'drizzle-orm';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, eventually, useGateway } from '../../tests/support/harness/gateways.ts';
import type { Engine } from './openapi/schemas.ts';

const gateway = useGateway();
let second: FakeEngine;
beforeEach(async () => {
  second = await new FakeEngine().start();
});
afterEach(async () => {
  await second.stop();
  await gateway.db.delete(replicas);
});

const change = async (url: string, how: string) => {
  const reply = await gateway.admin('POST', '/engines', { url, change: how });
  return { status: reply.status, body: await reply.json() };
};
const list = async (): Promise<Engine[]> => (await (await gateway.admin('GET', '/engines')).json()).engines;
const engineAt = async (url: string) => (await list()).find((engine) => engine.url === url);

/** Asks from new trials until `seen` holds. All must be answered. */
const askUntil = (seen: () => boolean) =>
  eventually(async () => {
    expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
    return seen();
  });

test('an engine that a person joins gets calls at once, stays when the gateway starts again, and leaves when the person says so', async () => {
  expect((await change(`${second.url}/`, 'join')).body.engines).toContainEqual({
    url: second.url,
    found_by: 'hand',
    state: 'serving',
    drained_by_hand: false,
    run_id: null,
    weight_version: null,
    in_rotation: true,
    calls_in_flight: 0,
  });
  await askUntil(() => second.seen.length > 0);
  await gateway.restart();
  expect(await list()).toMatchObject(
    [
      { url: gateway.engine.url, found_by: 'list' },
      { url: second.url, found_by: 'hand' },
    ].toSorted((a, b) => (a.url < b.url ? -1 : 1)),
  );
  expect((await change(second.url, 'leave')).status).toBe(200);
  expect(await list()).toMatchObject([{ url: gateway.engine.url }]);
});

test('an engine that a person drains gets no new calls, also after a restart, until the person lets it serve again', async () => {
  await change(second.url, 'join');
  const drained = await change(gateway.engine.url, 'drain');
  expect(drained.body.engines).toContainEqual(
    expect.objectContaining({ url: gateway.engine.url, state: 'draining', drained_by_hand: true }),
  );
  await gateway.restart();
  const given = gateway.engine.seen.length;
  for (let i = 0; i < 10; i++) expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
  expect([gateway.engine.seen.length, second.seen.length]).toEqual([given, 10]);
  await change(gateway.engine.url, 'join');
  await askUntil(() => gateway.engine.seen.length > given);
});

test('calls under way at a drained engine are counted and end', async () => {
  await change(second.url, 'join');
  await change(gateway.engine.url, 'drain');
  const held = Promise.withResolvers<void>();
  second.beforeEnd = () => held.promise;
  await gateway.restart();
  const underWay = (await gateway.trial()).chat(ASK);
  await eventually(() => second.seen.length === 1);
  await change(second.url, 'drain');
  expect(await engineAt(second.url)).toMatchObject({ state: 'draining', calls_in_flight: 1 });
  held.resolve();
  expect((await underWay).status).toBe(200);
  await eventually(async () => (await engineAt(second.url))?.calls_in_flight === 0);
});

test('a person decides only about the deployment’s engines, and removes only what a person has joined', async () => {
  const { url } = gateway.engine;
  expect(await change(url, 'leave')).toMatchObject({
    status: 409,
    body: {
      error: {
        message: `engine ${url} stays, because the list of \`--engine\` names it: start the gateways without it, or drain it`,
      },
    },
  });
  expect(await change('http://nobody:1', 'drain')).toMatchObject({ status: 404 });
  expect(await change('relay:w1', 'join')).toMatchObject({ status: 409 });
  for (const wrong of ['ftp://a', 'http://a\u0000b', ''])
    expect(await change(wrong, 'join')).toMatchObject({ status: 400 });
  expect(await change(url, 'stop')).toMatchObject({ status: 400 });
  await gateway.db.insert(replicas).values({ url: 'http://own:1', pool: 'run', runId: 'run' });
  expect(await engineAt('http://own:1')).toMatchObject({ found_by: 'run', run_id: 'run' });
  for (const how of ['join', 'drain', 'leave'])
    expect(await change('http://own:1', how)).toMatchObject({
      status: 409,
      body: { error: { message: expect.stringContaining('belongs to run run, whose run file names it') } },
    });
  await gateway.db.update(replicas).set({ foundBy: 'file', draining: true }).where(eq(replicas.url, url));
  expect((await change(url, 'join')).body.engines).toContainEqual(expect.objectContaining({ url, state: 'draining' }));
});

test('the last engine of a run that left is listed as left, and a person may join it again', async () => {
  await change(second.url, 'join');
  await change(gateway.engine.url, 'drain');
  await gateway.db.delete(replicas).where(eq(replicas.url, gateway.engine.url));
  await gateway.db.update(replicas).set({ runId: 'run', weightVersion: 'run@1' });
  expect((await change(second.url, 'leave')).body.engines).toEqual([
    expect.objectContaining({ url: second.url, found_by: null, state: 'left', run_id: 'run' }),
  ]);
  for (const how of ['drain', 'leave']) expect(await change(second.url, how)).toMatchObject({ status: 404 });
  expect((await change(second.url, 'join')).body.engines).toEqual([
    expect.objectContaining({ url: second.url, found_by: 'hand', state: 'serving', run_id: 'run' }),
  ]);
});

test('an engine behind a relay worker leaves with its worker only', async () => {
  await gateway.db.insert(replicas).values({ url: 'relay:w1' });
  expect(await change('relay:w1', 'leave')).toMatchObject({
    status: 409,
    body: {
      error: { message: 'engine relay:w1 leaves when its relay worker ends: stop that worker, or drain the engine' },
    },
  });
});

test('the routes of engines need the admin key', async () => {
  const url = `${gateway.gateway.url}/engines`;
  const trial = await gateway.trial();
  for (const authorization of ['', `Bearer ${trial.key}`]) {
    expect((await fetch(url, { headers: { authorization } })).status).toBe(401);
    expect((await fetch(url, { method: 'POST', headers: { authorization }, body: '{}' })).status).toBe(401);
  }
});
