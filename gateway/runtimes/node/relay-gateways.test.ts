import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { relayKey } from '../../../core/keys.ts';
import { readLeases } from '../../../store/queries/relay-leases.ts';
import { relayWorkers, replicas } from '../../../store/schema.ts';
import {
  ADMIN_KEY,
  ASK,
  IN_WORKERD,
  readStream,
  SECRET,
  startTestGateway,
} from '../../../tests/support/harness/gateways.ts';
import { openWire, TestWorker, workersOf } from '../../../tests/support/harness/relay.ts';
import { useTokenGateways } from '../../../tests/support/harness/token-gateway.ts';
import { hangUpAtEngine } from '../../../tests/support/scenarios/hang-up-at-engine.ts';
import { IN_GATE } from '../../../tests/support/harness/in-gate.ts';
import { killOwnersUnderLoad } from '../../../tests/support/scenarios/relay-owner-kills.ts';
import type { NodeGateway } from './start-gateway.ts';

// In a Worker one object has all relay workers.
describe.skipIf(IN_WORKERD)('two gateways', () => {
  const context = useTokenGateways();
  const workers: TestWorker[] = [];
  /** The gateway that the worker dials, and another one. */
  let [owner, other]: [NodeGateway, NodeGateway] = [] as never;
  let wire: Awaited<ReturnType<typeof openWire>>;

  const dial = (gateway: string, id = 'w1') => {
    const worker = new TestWorker({ gateway, engine: context.toy.url, adminKey: ADMIN_KEY, id });
    workers.push(worker);
    return worker;
  };
  const ownerOf = async (id = 'w1') => (await readLeases(context.db)).find((lease) => lease.id === id)?.gateway;
  const ask = (url: string, path: string, { method = 'GET', key = ADMIN_KEY, headers = {}, body = '' } = {}) =>
    fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...headers },
      ...(body === '' ? {} : { body }),
    });
  /** Opens a trial whose calls go to the gateway that does not have the worker. */
  const trialAtOther = async () => {
    const trial = await context.trial();
    const chat = (body: unknown, init: RequestInit = {}) =>
      fetch(`${other.url}/${trial.id}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${trial.key}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
        ...init,
      });
    return { ...trial, chat };
  };

  beforeEach(async () => {
    await context.serve({}, { engines: ['relay'] });
    owner = context.gateway;
    other = await startTestGateway({
      ...{ host: '127.0.0.1', port: 0, databaseUrl: context.postgres.url, adminKey: ADMIN_KEY, secret: SECRET },
      ...{ engines: ['relay'], drainMs: 500, settings: { idleMs: 20_000 } },
    });
    wire = await openWire(owner.url);
    dial(wire.url);
    await expect.poll(() => ownerOf()).toBe(owner.url);
  });
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop()));
    await wire.link.close();
    await other.close();
    await context.db.delete(relayWorkers);
    await context.db.delete(replicas);
  });

  test('answer calls with a worker that dialled one of them: streamed, by the recorded ids, and recorded alike', async () => {
    const trial = await trialAtOther();
    context.toy.script.push({ text: 'one two' }, { text: 'three' });
    const first = await readStream(await trial.chat({ ...ASK, stream: true }));
    expect([first.done, first.broken]).toEqual([true, false]);
    const messages = [...ASK.messages, { role: 'assistant', content: 'one two' }, { role: 'user', content: 'on' }];
    expect((await trial.chat({ ...ASK, messages })).status).toBe(200);
    expect(await trial.calls()).toMatchObject([
      { status: 'completed', engine: 'relay:w1', untrainable: null },
      { status: 'completed', engine: 'relay:w1', untrainable: null, continuation: 'clean' },
    ]);
  });

  test('answer a large request, on the heavy thread of the one that does not have the worker', async () => {
    const trial = await trialAtOther();
    const content = 'word '.repeat(200_000);
    expect((await trial.chat({ ...ASK, messages: [{ role: 'user', content }] })).status).toBe(200);
    expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: 'relay:w1', untrainable: null }]);
  });

  test('end the engine’s request when an agent hangs up on the one that does not have the worker', async () => {
    const trial = await trialAtOther();
    const isClosed = await hangUpAtEngine(context.toy, (signal) => trial.chat(ASK, { signal }));
    await expect.poll(isClosed).toBe(true);
  });

  test('both pass the trainer’s requests on to the worker’s engine, and refuse the rest', async () => {
    context.toy.weightVersion = 'run@3';
    for (const { url } of [owner, other]) {
      const version = await ask(url, '/relay/workers/w1/weight_info', { key: relayKey(SECRET) });
      expect([version.status, await version.json()]).toEqual([200, { weight_version: 'run@3' }]);
      expect((await ask(url, '/relay/workers/w1/version')).status).toBe(403);
      expect((await ask(url, '/relay/workers/nobody/weight_info')).status).toBe(404);
    }
  });

  test('refuse a request under a lease that has ended, and one under a lease of the other gateway', async () => {
    const [lease] = await readLeases(context.db);
    const at = (url: string, epoch = lease?.epoch) =>
      ask(url, '/relay/workers/w1/weight_info', {
        key: relayKey(SECRET),
        headers: { 'x-trialgate-relay-epoch': `${epoch}` },
      });
    expect((await at(owner.url)).status).toBe(200);
    expect((await at(owner.url, 1 + (lease?.epoch ?? 0))).status).toBe(421);
    expect((await at(other.url)).status).toBe(421);
  });

  test('give a worker up when the other one asks, and refuse the admin key for that', async () => {
    const give = (key: string) => ask(owner.url, '/relay/workers/w1', { method: 'DELETE', key });
    expect((await give(ADMIN_KEY)).status).toBe(401);
    expect(await workersOf(owner.url, ADMIN_KEY)).toHaveLength(1);
    expect((await give(relayKey(SECRET))).status).toBe(200);
    expect(await workersOf(owner.url, ADMIN_KEY)).toEqual([]);
  });

  test('give a name to the worker that dials last, at either of them; the earlier worker ends and says what to do', async () => {
    const [before] = await readLeases(context.db);
    const [first] = workers;
    dial(other.url);
    expect(await first?.ended).toMatchObject({ message: expect.stringContaining('--id') });
    await expect.poll(() => ownerOf()).toBe(other.url);
    expect(await workersOf(owner.url, ADMIN_KEY)).toEqual([]);
    const [after] = await readLeases(context.db);
    expect(after?.epoch).toBeGreaterThan(before?.epoch ?? Infinity);
    expect((await (await context.trial()).chat(ASK)).status).toBe(200);
  });

  test('let a worker whose connection was cut come back at the other one, and the first then asks it through that one', async () => {
    wire.leadTo(other.url);
    await expect.poll(() => ownerOf()).toBe(other.url);
    await expect.poll(() => workersOf(owner.url, ADMIN_KEY)).toEqual([]);
    expect(await context.replicaUrls()).toEqual(['relay:w1']);
    const trial = await context.trial();
    expect((await trial.chat(ASK)).status).toBe(200);
    expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: 'relay:w1' }]);
  });

  test('take a worker from a dead gateway when its lease has ended, and not before', async () => {
    const dead = { id: 'w2', url: 'relay:w2', gateway: 'http://127.0.0.1:1', session: 'another' };
    await context.db.insert(relayWorkers).values({ ...dead, renewedAt: new Date(Date.now() - 8_000) });
    const worker = dial(other.url, 'w2');
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect([await ownerOf('w2'), worker.log]).toEqual([dead.gateway, []]);
    await expect.poll(() => ownerOf('w2')).toBe(other.url);
  });

  test('remove the replica of a worker that did not come back after its gateway died', async () => {
    const gone = { id: 'w2', url: 'relay:w2', gateway: 'http://127.0.0.1:1', session: 'another' };
    await context.db.insert(replicas).values({ url: 'relay:w2' });
    await context.db.insert(relayWorkers).values({ ...gone, renewedAt: new Date(Date.now() - 120_000) });
    await expect.poll(() => context.replicaUrls()).toEqual(['relay:w1']);
  });
});

test.skipIf(IN_WORKERD)(
  'a killed gateway’s worker comes back at the other one; no reply that an agent saw is lost, and none is recorded twice',
  async () => {
    const counts = await killOwnersUnderLoad({ kills: process.env[IN_GATE] ? 1 : 3, agents: 8 });
    expect(counts).toMatchObject({ lost: [], twice: [], unsampled: [], odd: [] });
    expect(Math.min(...counts.endedAt)).toBeGreaterThan(0);
  },
);
