import { afterEach, expect, test } from 'vitest';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, eventually, useGateway } from '../../tests/support/harness/gateways.ts';
import { vllmMetrics } from '../../tests/support/scenarios/vllm-metrics.ts';
import { preference } from './preference.ts';

const gateway = useGateway();
const others: FakeEngine[] = [];
afterEach(async () => {
  for (const engine of others.splice(0)) await engine.stop();
});

/** Makes the engine hold its replies back until `release`. */
function hold(engine: FakeEngine): { release: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  engine.beforeEnd = () => promise;
  return { release: resolve };
}

/** Starts a gateway before an engine with room for one call (of about 1,050 tokens) at a time, which it has told. */
async function fullAtOne(settings = {}) {
  gateway.engine.metrics = vllmMetrics({ blocks: 100, queries: 40, hits: 30 });
  await gateway.restart({ settings });
  const trial = await gateway.trial();
  await trial.chat(ASK);
  await eventually(async () => (await gateway.metrics())[metric('engine_kv_tokens')] === 1_600);
  gateway.engine.seen.length = 0;
  return trial;
}
const metric = (name: string) => `trialgate_${name}{engine="${gateway.engine.url}"}`;
const waiting = async () => (await gateway.metrics()).trialgate_calls_waiting_for_room;

test('what an engine reports of its load is in the metrics', async () => {
  await fullAtOne();
  const metrics = await gateway.metrics();
  expect(
    ['running', 'waiting', 'kv_use', 'prefix_queries_total', 'prefix_hits_total'].map(
      (name) => metrics[metric(`engine_${name}`)],
    ),
  ).toEqual([0, 0, 0, 40, 30]);
});

test('calls without room in the KV cache wait at the gateway, and go on in turn as others end', async () => {
  await fullAtOne();
  const held = hold(gateway.engine);
  const [a, b] = [await gateway.trial(), await gateway.trial()];
  const replies = [a, b, a, b].map((trial) => trial.chat(ASK));
  await eventually(async () => gateway.engine.seen.length === 1 && (await waiting()) === 3);
  held.release();
  expect((await Promise.all(replies)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(await gateway.metrics()).toMatchObject({
    trialgate_calls_waiting_for_room: 0,
    trialgate_room_waits_total: 3,
    trialgate_room_refusals_total: 0,
  });
});

test('a call whose agent leaves while it waits for room is cancelled, and the engine never sees it', async () => {
  await fullAtOne();
  const held = hold(gateway.engine);
  const first = (await gateway.trial()).chat(ASK);
  await eventually(() => gateway.engine.seen.length === 1);
  const agent = new AbortController();
  const left = (await gateway.trial()).chat(ASK, { signal: agent.signal }).catch(() => null);
  await eventually(async () => (await waiting()) === 1);
  agent.abort();
  await left;
  await eventually(async () => (await waiting()) === 0);
  held.release();
  expect((await first).status).toBe(200);
  expect(gateway.engine.seen).toHaveLength(1);
  expect(await gateway.metrics()).toMatchObject({ 'trialgate_calls_total{status="cancelled"}': 1 });
});

test('a call that gets no room in time is refused, and may be tried again', async () => {
  await fullAtOne({ kvWaitMs: 300 });
  const held = hold(gateway.engine);
  const first = (await gateway.trial()).chat(ASK);
  await eventually(() => gateway.engine.seen.length === 1);
  const refused = await (await gateway.trial()).chat(ASK);
  expect([refused.status, refused.headers.get('retry-after'), await refused.json()]).toMatchObject([
    429,
    '10',
    { error: { code: 'engine_full' } },
  ]);
  held.release();
  expect((await first).status).toBe(200);
  expect(await gateway.metrics()).toMatchObject({ trialgate_room_refusals_total: 1 });
});

test.each([
  ['with kv_wait_seconds 0', { kvWaitMs: 0 }, true],
  ['of unknown size', {}, false],
])('before an engine %s no call waits for room', async (_, settings, tells) => {
  gateway.engine.metrics = tells ? vllmMetrics({ blocks: 100 }) : null;
  await gateway.restart({ settings });
  const trial = await gateway.trial();
  await trial.chat(ASK);
  const held = hold(gateway.engine);
  const replies = Array.from({ length: 6 }, () => trial.chat(ASK));
  await eventually(() => gateway.engine.seen.length === 7);
  held.release();
  expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(Array(6).fill(200));
});

test('the calls that an engine has from elsewhere count as its load', async () => {
  const [busy, idle] = [await new FakeEngine().start(), await new FakeEngine().start()];
  others.push(busy, idle);
  busy.metrics = vllmMetrics({ running: 20, blocks: 1_000_000 });
  idle.metrics = vllmMetrics({ blocks: 1_000_000 });
  await gateway.restart({ engines: [busy.url, idle.url] });
  const preferBusy = async () => {
    for (;;) {
      const trial = await gateway.trial();
      if (preference(trial.id, [busy, idle])[0] === busy) return trial;
    }
  };
  await (await preferBusy()).chat(ASK);
  await eventually(async () => (await gateway.metrics())[`trialgate_engine_running{engine="${busy.url}"}`] === 20);
  const seen = busy.seen.length;
  await (await preferBusy()).chat(ASK);
  expect([busy.seen.length, idle.seen.length > 0]).toEqual([seen, true]);
});

test('each call names its trial to a router by a hash in three headers, and not if that is turned off', async () => {
  const NAMES = ['x-session-id', 'x-dynamo-session-id', 'x-session-token'];
  const [a, b] = [await gateway.trial(), await gateway.trial()];
  for (const trial of [a, a, b]) await trial.chat(ASK);
  const named = gateway.engine.seen.map(({ headers }) => NAMES.map((name) => headers[name]));
  const [first] = named[0] ?? [];
  expect(first).toMatch(/^[\w-]{22}$/);
  expect(named.slice(0, 2)).toEqual([Array(3).fill(first), Array(3).fill(first)]);
  expect(named[2]?.[0]).not.toBe(first);
  expect([a.id, a.key].some((secret) => JSON.stringify(named).includes(secret))).toBe(false);
  await gateway.restart({ settings: { affinityHeaders: false } });
  await (await gateway.trial()).chat(ASK);
  expect(gateway.engine.last.headers['x-session-id']).toBeUndefined();
});
