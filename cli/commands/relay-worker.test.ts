import { afterEach, expect, test } from 'vitest';
import { replicas } from '../../store/schema.ts';
import { ADMIN_KEY, ASK, readStream } from '../../tests/support/harness/gateways.ts';
import { RelayWorkerProcess } from '../../tests/support/harness/relay.ts';
import { useTokenGateway } from '../../tests/support/harness/token-gateway.ts';

const gateway = useTokenGateway({ engines: ['relay'] });
const started: RelayWorkerProcess[] = [];
afterEach(async () => {
  await Promise.all(started.splice(0).map((worker) => worker.stop()));
  await gateway.db.delete(replicas);
});

const start = (given: { adminKey?: string; id?: string; engine?: string; checkpoints?: string } = {}) => {
  const worker = new RelayWorkerProcess({
    gateway: gateway.gateway.url,
    engine: gateway.toy.url,
    adminKey: ADMIN_KEY,
    ...given,
  });
  started.push(worker);
  return worker;
};
const rows = () => gateway.replicaUrls();

test('the process serves the gateway’s calls under a name that it makes, and its log names gateway and engine', async () => {
  const worker = start();
  await expect.poll(rows).toHaveLength(1);
  const trial = await gateway.trial();
  gateway.toy.script.push({ text: 'said by the engine' });
  const reply = await trial.chat(ASK);
  expect(await reply.text()).toContain('said by the engine');
  const [url] = await rows();
  expect(url).toMatch(new RegExp(`^relay:.+-${new URL(gateway.toy.url).port}$`));
  expect(await trial.calls()).toMatchObject([{ status: 'completed', engine: url, untrainable: null }]);
  expect(worker.said).toContain(`connected to ${gateway.gateway.url}`);
  expect(worker.said).toContain(`serves ${gateway.toy.url}`);
});

test('SIGTERM lets the stream under way end, and then the process, with exit code 0', async () => {
  const worker = start({ id: 'w1' });
  await expect.poll(rows).toEqual(['relay:w1']);
  const [begun, stopping] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  gateway.toy.before = async ({ path }) => {
    if (path !== '/v1/chat/completions') return;
    begun.resolve();
    await stopping.promise;
  };
  const trial = await gateway.trial();
  const reply = trial.chat({ ...ASK, stream: true }).then(readStream);
  await begun.promise;
  worker.kill('SIGTERM');
  await expect
    .poll(() => worker.said)
    // The gateway's own questions to the engine count too.
    .toMatch(/stops after [1-9] requests under way/)
    .finally(stopping.resolve);
  expect(await reply).toMatchObject({ done: true, broken: false });
  expect(await worker.ended()).toBe(0);
  expect(await trial.calls()).toMatchObject([{ status: 'completed', untrainable: null }]);
  await expect.poll(rows).toEqual([]);
});

test.each([
  ['a wrong key', { adminKey: 'another-admin-key' }, 'refuses the admin key: set --admin-key to its own'],
  ['an engine that is not there', { engine: 'http://127.0.0.1:1' }, 'does not answer: start it, or correct --engine'],
  [
    'a folder for checkpoints that cannot be written',
    { checkpoints: '/dev/null/checkpoints' },
    'checkpoints cannot be kept in /dev/null/checkpoints',
  ],
  ['a name that is none', { id: '../w' }, '--id: expected letters, digits'],
])('%s ends the process with a sentence that says what to do', async (_, given, sentence) => {
  const worker = start(given);
  expect(await worker.ended()).not.toBe(0);
  expect(worker.said).toContain(sentence);
  expect(worker.said).not.toContain('    at ');
});

test('an empty --checkpoints is none, and not the current folder', async () => {
  start({ id: 'w1', checkpoints: '' });
  await expect.poll(rows).toEqual(['relay:w1']);
  const reply = await gateway.admin('POST', '/relay/workers/w1/trialgate/checkpoint', { path: '/of/no/checkpoint' });
  expect(await reply.json()).toEqual({ ready: true });
});

test('a second process of the same name takes the place of the first, which ends with a sentence that says what to do', async () => {
  const first = start({ id: 'w1' });
  await expect.poll(rows).toEqual(['relay:w1']);
  const second = start({ id: 'w1' });
  expect(await first.ended()).not.toBe(0);
  expect(first.said).toContain('another worker has connected as w1: give each its own --id');
  await expect.poll(() => second.said).toContain('connected');
  expect((await (await gateway.trial()).chat(ASK)).status).toBe(200);
});
