import { eq } from 'drizzle-orm';
import { afterEach, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, eventually, readStream, useGateway, type TestGateway } from '../../tests/support/harness/gateways.ts';
import { preference } from './preference.ts';

const gateway = useGateway();
let engines: FakeEngine[] = [];
afterEach(async () => {
  for (const engine of engines) await engine.stop();
});

type Trial = Awaited<ReturnType<TestGateway['trial']>>;

/** Starts two engines, and returns trials that prefer the first and have made a call there. */
async function serve(
  count: number,
  settings = {},
): Promise<{ first: FakeEngine; second: FakeEngine; trials: Trial[] }> {
  const [first, second] = await Promise.all([new FakeEngine().start(), new FakeEngine().start()]);
  engines = [first, second];
  await gateway.restart({ engines: engines.map(({ url }) => url), settings });
  const trials: Trial[] = [];
  while (trials.length < count) {
    const trial = await gateway.trial();
    if (preference(trial.id, engines)[0] !== first) continue;
    trials.push(trial);
    await trial.chat(ASK);
  }
  first.seen.length = 0;
  return { first, second, trials };
}

async function rotate(engine: FakeEngine, inRotation: boolean): Promise<void> {
  await gateway.db.update(replicas).set({ inRotation, updatedAt: new Date() }).where(eq(replicas.url, engine.url));
}

async function seenBy(what: 'calls_in_flight' | 'escapes_total'): Promise<number[]> {
  const metrics = await gateway.metrics();
  return engines.map(({ url }) => metrics[`trialgate_engine_${what}{engine="${url}"}`] ?? 0);
}

/** Makes the engine hold back its next `count` replies until `release`. */
function hold(engine: FakeEngine, count = Infinity): { release: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  let left = count;
  engine.beforeEnd = () => (left-- > 0 ? promise : undefined);
  return { release: resolve };
}

test('a replica out of rotation finishes its calls and gets no new ones; back in rotation it gets its trials again', async () => {
  const {
    first,
    second,
    trials: [trial, other],
  } = await serve(2);
  if (!trial || !other) throw new Error('no trials');
  const held = hold(first, 1);
  const underWay = other.chat({ ...ASK, stream: true }).then(readStream);
  await eventually(() => first.seen.length === 1);
  await rotate(first, false);
  // Calls come without a pause. Those of the first moment may still use rows that were read before.
  const ends = Date.now() + 300;
  while (Date.now() < ends) await trial.chat(ASK);
  const [given, before] = [first.seen.length, second.seen.length];
  for (let i = 0; i < 5; i++) expect((await trial.chat(ASK)).status).toBe(200);
  expect([first.seen.length, second.seen.length]).toEqual([given, before + 5]);
  held.release();
  expect(await underWay).toMatchObject({ done: true, broken: false });
  await rotate(first, true);
  await eventually(async () => {
    await trial.chat(ASK);
    return first.seen.length > given;
  });
});

test('a trial leaves a loaded engine for an idle one once, and stays there', async () => {
  const { first, second, trials } = await serve(5);
  const [late, ...early] = trials;
  const held = hold(first);
  const replies = early.map((trial) => trial.chat(ASK));
  await eventually(() => first.seen.length === 4);
  expect((await late?.chat(ASK))?.status).toBe(200);
  expect([await seenBy('calls_in_flight'), await seenBy('escapes_total')]).toEqual([
    [4, 0],
    [1, 0],
  ]);
  held.release();
  await Promise.all(replies);
  await late?.chat(ASK);
  expect([first.seen.length, second.seen.length]).toEqual([4, 2]);
  expect([await seenBy('calls_in_flight'), await seenBy('escapes_total')]).toEqual([
    [0, 0],
    [1, 0],
  ]);
});

test('calls that arrive at the same time are spread over the engines', async () => {
  const { first, second, trials } = await serve(24);
  const held = [hold(first), hold(second)];
  const replies = trials.map((trial) => trial.chat(ASK));
  await eventually(() => first.seen.length + second.seen.length === 24);
  expect(Math.abs(first.seen.length - second.seen.length)).toBeLessThanOrEqual(4);
  for (const each of held) each.release();
  expect((await Promise.all(replies)).map((reply) => reply.status)).toEqual(Array(24).fill(200));
});

test('an idle engine without the run’s weights gets none of the run’s calls', async () => {
  const { first, second } = await serve(0);
  first.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  const trials: Trial[] = [];
  while (trials.length < 10) {
    const trial = await gateway.trial({ runId: 'run' });
    if (preference(trial.id, engines)[0] === first) trials.push(trial);
  }
  const held = hold(first);
  const replies = trials.map((trial) => trial.chat(ASK));
  await eventually(() => first.seen.length === 10);
  held.release();
  expect((await Promise.all(replies)).map((reply) => reply.status)).toEqual(Array(10).fill(200));
  expect(second.seen).toEqual([]);
  expect(await seenBy('escapes_total')).toEqual([0, 0]);
});

test('a call counts towards its engine’s load until it ends and no longer, however it ends', async () => {
  const {
    first,
    trials: [trial],
  } = await serve(1, { idleMs: 300 });
  if (!trial) throw new Error('no trial');
  await trial.chat(ASK);
  await (await trial.chat({ ...ASK, stream: true })).text();
  for (const fault of ['bad_request', 'status_500', 'not_json', 'hang', 'cut', 'error_event'] as const) {
    first.fault = fault;
    for (const stream of [false, true]) await (await trial.chat({ ...ASK, stream })).text().catch(() => {});
  }
  first.fault = 'none';
  await fetch(`${trial.baseUrl}/models`, { headers: { authorization: `Bearer ${trial.key}` } });
  expect(await seenBy('calls_in_flight')).toEqual([0, 0]);
  first.delay = 50;
  for (const stream of [false, true]) {
    const agent = new AbortController();
    const left = trial.chat({ ...ASK, stream }, { signal: agent.signal }).then((reply) => reply.text());
    await eventually(async () => (await seenBy('calls_in_flight'))[0] === 1);
    agent.abort();
    await left.catch(() => {});
    await eventually(async () => (await seenBy('calls_in_flight'))[0] === 0);
  }
  first.delay = 0;
  await gateway.restart({ engines: engines.map(({ url }) => url), settings: { strictModel: true } });
  expect((await trial.chat(ASK)).status).toBe(404);
  expect(await seenBy('calls_in_flight')).toEqual([0, 0]);
});
