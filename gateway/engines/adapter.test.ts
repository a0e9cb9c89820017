import { expect, test } from 'vitest';
import { ASK, readStream, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();

/** Loads an adapter as the run's weights. The engine still reports `default`, its base's weight version. */
async function loaded(version: number): Promise<void> {
  gateway.engine.adapters = [...gateway.engine.adapters.slice(-1), `run@${version}`];
  await gateway.givePool('run', `run@${version}`);
}

test('a run’s call goes to its LoRA adapter, and its tokens get the adapter’s version although the engine reports that of its base', async () => {
  await loaded(3);
  const trial = await gateway.trial({ runId: 'run' });
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(await readStream(await trial.chat({ ...ASK, stream: true }))).toMatchObject({ done: true, broken: false });
  expect(gateway.engine.seen.map(({ body }) => body.model)).toEqual(['run@3', 'run@3']);
  expect(await trial.calls()).toMatchObject(
    Array(2).fill({
      status: 'completed',
      weightVersion: 'run@3',
      policyVersion: 3,
      versionSpans: null,
      untrainable: null,
    }),
  );
});

test('a call under way when its run’s next adapter is loaded is trainable, and the run’s next call asks for the new adapter', async () => {
  await loaded(3);
  const trial = await gateway.trial({ runId: 'run' });
  gateway.engine.beforeEnd = () => loaded(4);
  expect((await trial.chat(ASK)).status).toBe(200);
  gateway.engine.beforeEnd = () => {};
  expect((await trial.chat(ASK)).status).toBe(200);
  expect(gateway.engine.seen.map(({ body }) => body.model)).toEqual(['run@3', 'run@4']);
  const version = (policyVersion: number) => ({
    status: 'completed',
    weightVersion: `run@${policyVersion}`,
    policyVersion,
    untrainable: null,
  });
  expect(await trial.calls()).toMatchObject([version(3), version(4)]);
});

test('the base model never answers a run’s call: the call waits for the run’s LoRA adapter and fails when the engine lost it', async () => {
  await gateway.restart({ settings: { holdMs: 400 } });
  await gateway.givePool('run', 'run@3');
  const trial = await gateway.trial({ runId: 'run' });
  expect((await trial.chat(ASK)).status).toBe(503);
  await loaded(3);
  // The gateway knows the models after the second call, because the new connection of the first one may lead to another process.
  for (let i = 0; i < 2; i++) expect((await trial.chat(ASK)).status).toBe(200);
  gateway.engine.adapters = [];
  // Nobody has reported yet that the adapter is gone. The engine refuses, which is not the agent's fault.
  const statuses = [(await trial.chat(ASK)).status, (await trial.chat(ASK)).status];
  expect(statuses).toEqual([502, 503]);
  await loaded(3);
  expect((await trial.chat(ASK)).status).toBe(200);
});
