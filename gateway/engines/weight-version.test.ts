import { expect, test } from 'vitest';
import { FakeEngine } from '../../tests/support/fakes/fake-engine.ts';
import { ASK, readStream, useGateway } from '../../tests/support/harness/gateways.ts';
import { preference } from './preference.ts';

const gateway = useGateway();
/** Makes calls that get no engine fail soon. */
const refuseSoon = () => gateway.restart({ settings: { holdMs: 400 } });

test('a run’s call waits and is then refused while no engine is in rotation with the run’s weights', async () => {
  await refuseSoon();
  const trial = await gateway.trial({ runId: 'mine' });
  for (const [owner, inRotation, status, code] of [
    ['theirs', true, 503, 'engine_unavailable'],
    ['mine', true, 503, 'engine_unavailable'],
    ['mine', false, 429, 'engine_paused'],
  ] as const) {
    await gateway.givePool(owner, `${owner}@1`, inRotation);
    const reply = await trial.chat(ASK);
    expect([reply.status, (await reply.json()).error.code]).toEqual([status, code]);
    expect(reply.headers.get('retry-after')).not.toBeNull();
    expect(reply.headers.get('x-should-retry')).toBeNull();
  }
  expect(gateway.engine.seen).toEqual([]);
  expect(await trial.calls()).toMatchObject(Array(3).fill({ status: 'failed', weightVersion: null }));
});

test('a run’s call that waits is sent when an engine with the run’s weights comes into rotation', async () => {
  const trial = await gateway.trial({ runId: 'run' });
  await gateway.givePool('run', 'run@1', false);
  const reply = trial.chat(ASK);
  gateway.engine.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  expect((await reply).status).toBe(200);
});

test('an engine that restarted gets no calls of a run until it reports the run’s weight version again', async () => {
  await refuseSoon();
  gateway.engine.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  const trial = await gateway.trial({ runId: 'run' });
  expect((await trial.chat(ASK)).status).toBe(200);
  await gateway.engine.stop();
  await gateway.engine.start('default');
  expect((await trial.chat(ASK)).status).toBe(503);
  gateway.engine.weightVersion = 'run@1';
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(gateway.engine.seen).toHaveLength(2);
});

test('calls to an engine whose weight version PostgreSQL cannot store are answered and recorded with a cleaned weight version', async () => {
  gateway.engine.weightVersion = 'a\u0000b\ud800';
  const trial = await gateway.trial();
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(await trial.calls()).toMatchObject([{ status: 'completed', weightVersion: 'a\uFFFDb\uFFFD' }]);
});

test('a call is recorded as failed when its engine restarted before the end of the reply', async () => {
  await refuseSoon();
  gateway.engine.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  const trial = await gateway.trial({ runId: 'run' });
  const other = await gateway.trial({ runId: 'run' });
  const [sampled, restarted] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  gateway.engine.beforeEnd = () => (sampled.resolve(), restarted.promise);
  const reading = trial.chat({ ...ASK, stream: true }).then(readStream);
  await sampled.promise;
  gateway.engine.beforeEnd = () => {};
  gateway.engine.weightVersion = 'default';
  // This call makes a second connection, so the weight version is read again, and it is no longer the pool's.
  await other.chat(ASK);
  restarted.resolve();
  const stream = await reading;
  expect(stream).toMatchObject({ broken: true, finish: undefined, done: false });
  expect(stream.chunks.at(-1)?.error?.code).toBe('weight_version_mismatch');
  expect(await trial.calls()).toMatchObject([{ status: 'failed', weightVersion: 'run@1' }]);
  expect(await other.calls()).toMatchObject([{ status: 'failed' }]);
  expect((await trial.chat(ASK)).status).toBe(503);
});

test('a call under way during a publication is not trained on if its engine reports no version spans, and the next call has the new version', async () => {
  gateway.engine.weightVersion = 'run@1';
  await gateway.givePool('run', 'run@1');
  const trial = await gateway.trial({ runId: 'run' });
  gateway.engine.beforeEnd = async () => {
    gateway.engine.weightVersion = 'run@2';
    await gateway.givePool('run', 'run@2');
  };
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(await trial.calls()).toMatchObject([
    { status: 'completed', weightVersion: 'run@1', untrainable: 'policy_changed' },
  ]);
  gateway.engine.beforeEnd = () => {};
  expect((await trial.chat(ASK)).status).toBe(200);
  const calls = await trial.calls();
  expect(calls[1]).toMatchObject({ weightVersion: 'run@2', policyVersion: 2, untrainable: null });
});

test('when a replica is lost, calls that have not begun are answered by another replica', async () => {
  const second = await new FakeEngine().start();
  await gateway.restart({ engines: [gateway.engine.url, second.url] });
  const trials = await Promise.all(Array.from({ length: 8 }, () => gateway.trial()));
  await second.stop();
  const replies = await Promise.all(trials.map((trial) => trial.chat(ASK)));
  expect(replies.map((reply) => reply.status)).toEqual(Array(8).fill(200));
});

test('a trial keeps its replica from call to call, also when another replica leaves', () => {
  const replicas = ['a', 'b', 'c'].map((url) => ({ url }));
  const firsts = Array.from({ length: 300 }, (_, i) => preference(`run-0.1-${i}`, replicas)[0]?.url);
  for (const { url } of replicas) expect(firsts.filter((first) => first === url).length).toBeGreaterThan(60);
  for (let i = 0; i < 300; i++) {
    const left = replicas.filter((replica) => replica.url !== 'b');
    if (firsts[i] !== 'b') expect(preference(`run-0.1-${i}`, left)[0]?.url).toBe(firsts[i]);
  }
});
