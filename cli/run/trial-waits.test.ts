import { Context } from '@temporalio/activity';
import { expect, test } from 'vitest';
import { FakeWorld } from '../../tests/support/fakes/fake-activities.ts';
import { until } from '../../tests/support/harness/until.ts';
import { useTemporal } from '../../tests/support/harness/use-temporal.ts';
import { withWorkers } from '../../tests/support/harness/workflow-worker.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { readTrialWaits, trialWaitsLine } from './trial-waits.ts';

const environment = useTemporal();
const NONE = {
  ...{ host_slot: 0, opening: 0, engine_room: 0, packages: 0, image: 0, start_turn: 0, start: 0 },
  ...{ agent: 0, verifier: 0, engines: 0 },
};

test('the trials of a run are counted by what they wait for: a host, their image, their agent', async () => {
  const world = new FakeWorld();
  Object.assign(world.config, { iterations: 1, groups_per_iteration: 1, group_size: 4 });
  const freed = Promise.withResolvers<void>();
  let isFree = false;
  const sandboxes = world.sandboxes();
  const openTrial: typeof sandboxes.openTrial = async (input) => {
    const which = input.trialId.at(-1);
    if (which === '0' && !isFree) throw new Error('this host has no room');
    if (which === '1') Context.current().heartbeat('image');
    if (which === '1' || which === '2') await freed.promise;
    return sandboxes.openTrial(input);
  };
  world.runAgent = async () => {
    await freed.promise;
    return { outcome: null, seconds: {} };
  };
  const workers = { trialgate: world.general(), sandboxes: { openTrial }, host: world.host(), gpu: world.gpu() };
  await withWorkers(environment, workers, async () => {
    const { client } = environment;
    const run = await client.workflow.start('trainRun', { workflowId: 'waiting', taskQueue: 'trialgate', args: [{}] });
    const waits = async () => readTrialWaits(client, await run.query<RunStatusReport>('status'));
    const wanted = JSON.stringify({ ...NONE, host_slot: 1, opening: 1, image: 1, agent: 1 });
    await until(async () => JSON.stringify(await waits()) === wanted).finally(() => {
      isFree = true;
      freed.resolve();
    });
    await run.result();
    expect(await waits()).toEqual(NONE);
  });
});

test('the line of the trials names counts, calls at the engines, and a shortage of memory; without trials there is none', () => {
  expect(trialWaitsLine(NONE, 3, null)).toBeNull();
  expect(trialWaitsLine({ ...NONE, host_slot: 20, agent: 40 }, 12, '3.0% of its memory is available')).toBe(
    'trials: 20 wait for a host with room (max_sandboxes, sandboxes_per_second); this host is short of memory: 3.0% of its memory is available, 40 run their agents (12 calls are at the engines)',
  );
});
