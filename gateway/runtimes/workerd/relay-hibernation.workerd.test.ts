import { afterEach, expect, test } from 'vitest';
import { replicas } from '../../../store/schema.ts';
import { ADMIN_KEY, ASK } from '../../../tests/support/harness/gateways.ts';
import { openWire, TestWorker, VerlWorker } from '../../../tests/support/harness/relay.ts';
import { useTokenGateway } from '../../../tests/support/harness/token-gateway.ts';

/** workerd removes an idle object from memory after 10 s. */
const IDLE_MS = 13_000;
/** The worker's pings come every 15 s. */
const PINGED_MS = 20_000;
const context = useTokenGateway({ engines: ['relay'] });
const opened: (() => Promise<void>)[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((close) => close()));
  await context.db.delete(replicas);
});

const hibernated = () => context.log.filter((line) => line.includes('goes on after hibernation'));
const rows = () => context.replicaUrls();

test('a worker’s socket outlives the hibernation of its object: calls before and after it are answered, and one under way survives a cut', async () => {
  const wire = await openWire(context.gateway.url);
  const worker = new TestWorker({ gateway: wire.url, engine: context.toy.url, adminKey: ADMIN_KEY, id: 'w1' });
  opened.push(
    () => worker.stop(),
    () => wire.link.close(),
  );
  await expect.poll(rows).toEqual(['relay:w1']);
  const trial = await context.trial();
  expect((await trial.chat(ASK)).status).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, PINGED_MS));
  expect((await trial.chat({ ...ASK, stream: true })).status).toBe(200);
  expect(hibernated()).toHaveLength(1);
  expect(worker.log.filter((line) => line.startsWith('connected to'))).toHaveLength(1);
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  let held = 0;
  context.toy.before = ({ path }) => {
    if (path !== '/v1/chat/completions') return;
    held += 1;
    return answered;
  };
  const reply = trial.chat(ASK);
  await expect.poll(() => held).toBe(1);
  wire.link.cut();
  wire.link.restore();
  await expect.poll(() => worker.log.filter((line) => line.startsWith('connected to'))).toHaveLength(2);
  answer();
  expect([(await reply).status, held]).toEqual([200, 1]);
  expect(await trial.calls()).toMatchObject(
    Array.from({ length: 3 }, () => ({ status: 'completed', untrainable: null })),
  );
});

test('a call under way keeps the object in memory, however long its engine is silent', async () => {
  const worker = new TestWorker({
    gateway: context.gateway.url,
    engine: context.toy.url,
    adminKey: ADMIN_KEY,
    id: 'w1',
  });
  opened.push(() => worker.stop());
  await expect.poll(rows).toEqual(['relay:w1']);
  context.toy.before = ({ path }) =>
    path === '/v1/chat/completions' ? new Promise((resolve) => setTimeout(resolve, IDLE_MS)) : undefined;
  expect((await (await context.trial()).chat(ASK)).status).toBe(200);
  expect(hibernated()).toEqual([]);
});

test('a worker with verl’s frames answers calls after hibernation too', async () => {
  const worker = await VerlWorker.dial(context.gateway.url, { id: 'v1', key: ADMIN_KEY }, () => ({
    token_ids: [1],
    completion_text: 'said',
    finish_reason: 'stop',
  }));
  opened.push(() => worker.close());
  await expect.poll(rows).toEqual(['openai+relay:v1']);
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  expect(await (await (await context.trial()).chat(ASK)).text()).toContain('said');
  expect(hibernated()).toHaveLength(1);
});
