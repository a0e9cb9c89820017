import { Context } from '@temporalio/activity';
import proto from '@temporalio/proto';
import { expect, test } from 'vitest';
import { FakeWorld } from '../../tests/support/fakes/fake-activities.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { withWorkers } from '../../tests/support/harness/workflow-worker.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { readStepProgress, stepText } from './step-progress.ts';

const environment = useTemporal();

test('the step of a run that trains is what its trainer said last; before and after the step there is none', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { iterations: 1, groups_per_iteration: 1 });
  const [training, freed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  world.trainStep = async () => {
    Context.current().heartbeat({ phase: 'train', epoch: 0, pack: 3, packs: 12, tokens: 41_022 });
    training.resolve();
    await freed.promise;
  };
  const workers = { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() };
  await withWorkers(environment, workers, async () => {
    const { client } = environment;
    const run = await client.workflow.start('trainRun', { workflowId: 'steps', taskQueue: 'trialgate', args: [{}] });
    const step = async () => readStepProgress(client, await run.query<RunStatusReport>('status'));
    await training.promise;
    await until(async () => (await step()) === 'train, pack 3 of 12, 41,022 tokens').finally(freed.resolve);
    await run.result();
    expect(await step()).toBeNull();
  });
});

test('the step of a run before its first publication is what the trainer says while it loads the model', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { iterations: 1, groups_per_iteration: 1 });
  const freed = Promise.withResolvers<void>();
  const gpu = world.gpu();
  const loadBase: typeof gpu.loadBase = async () => {
    Context.current().heartbeat({ phase: 'self-check' });
    await freed.promise;
    return {};
  };
  const workers = {
    trialgate: world.general(),
    sandboxes: world.sandboxes(),
    host: world.host(),
    gpu: { ...gpu, loadBase },
  };
  await withWorkers(environment, workers, async () => {
    const { client } = environment;
    const run = await client.workflow.start('trainRun', { workflowId: 'loads', taskQueue: 'trialgate', args: [{}] });
    const step = async () => readStepProgress(client, await run.query<RunStatusReport>('status'));
    await until(async () => (await step()) === 'self-check').finally(freed.resolve);
    await run.result();
  });
});

test('a step whose trainer failed says nothing while it waits for its next attempt', async () => {
  const { PENDING_ACTIVITY_STATE_SCHEDULED: scheduled } = proto.temporal.api.enums.v1.PendingActivityState;
  const world = new FakeWorld();
  Object.assign(world.config, { iterations: 1, groups_per_iteration: 1 });
  const [said, freed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  world.trainStep = async () => {
    if (Context.current().info.attempt > 1) return freed.promise;
    Context.current().heartbeat({ phase: 'train', pack: 3, packs: 12 });
    said.resolve();
    throw new Error('the trainer is gone');
  };
  const workers = { trialgate: world.general(), sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() };
  await withWorkers(environment, workers, async () => {
    const { client } = environment;
    const run = await client.workflow.start('trainRun', { workflowId: 'waits', taskQueue: 'trialgate', args: [{}] });
    await said.promise;
    const pending = async () => (await client.workflow.getHandle('waits/0.1').describe()).raw.pendingActivities?.[0];
    await until(async () => (await pending())?.state === scheduled && (await pending())?.heartbeatDetails != null);
    expect(await readStepProgress(client, await run.query<RunStatusReport>('status'))).toBeNull();
    freed.resolve();
    await run.result();
  });
});

test('a step without packs is named by what it does, and a publication by its engine', () => {
  expect(stepText({ phase: 'write checkpoint' })).toBe('write checkpoint');
  expect(stepText({ phase: 'train', update: 2, updates: 4, pack: 1, packs: 1 })).toBe(
    'train, update 2 of 4, pack 1 of 1',
  );
  expect(stepText({ phase: 'optimizer', epoch: 1 })).toBe('optimizer, epoch 2');
  expect(stepText({ phase: 'load weights', replica: 'http://e:8000' })).toBe('load weights, http://e:8000');
});
