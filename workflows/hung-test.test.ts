import { expect, test } from 'vitest';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { startTemporal, stopTemporal, withWorkers, type Temporal } from '../tests/support/harness/workflow-worker.ts';

const runOnce = async (environment: Temporal, id: string): Promise<boolean> => {
  const world = new FakeWorld();
  world.config.iterations = 1;
  const activities = { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() };
  await withWorkers(environment, activities, async () =>
    environment.client.workflow.execute('trainRun', { workflowId: id, taskQueue: 'trialgate', args: [{}] }),
  );
  return world.log.includes('completed');
};

test('the tests’ Temporal workers: a test that hangs fails neither the next test of its file nor the files after it', async () => {
  const first = await startTemporal();
  const world = new FakeWorld();
  const [begun, hanging] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const hung = withWorkers(
    first,
    { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    () => {
      begun.resolve();
      return hanging.promise;
    },
  );
  await begun.promise;
  expect(await runOnce(first, 'next-test')).toBe(true);
  await stopTemporal(first);
  // Another file of this process starts a server of its own.
  const second = await startTemporal();
  expect(await runOnce(second, 'next-file')).toBe(true);
  await stopTemporal(second);
  hanging.resolve();
  await hung;
});
