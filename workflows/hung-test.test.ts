import { expect, test } from 'vitest';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';
import { endWorkers, withWorkers, type Temporal } from '../tests/support/harness/workflow-worker.ts';

/** What a test file has, and what the next file of this process has. */
const [first, second] = [useTemporal(), useTemporal()];

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
  await endWorkers(first);
  expect(await runOnce(second, 'next-file')).toBe(true);
  hanging.resolve();
  await hung;
});
