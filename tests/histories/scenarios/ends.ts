import { ApplicationFailure } from '@temporalio/common';
import { redoRun } from '../../../cli/run/redo-run.ts';
import { resumeRun } from '../../../cli/run/resume-run.ts';
import { startRun } from '../../../cli/run/start-run.ts';
import { FakeWorld } from '../../support/fakes/fake-activities.ts';
import { until } from '../../support/harness/until.ts';
import { hold, type Stage } from '../stage.ts';

const fails = (message: string): never => {
  throw ApplicationFailure.create({ message, nonRetryable: true });
};

/** A run of two iterations with evaluations before, between and after them. One trial loses its engine, which gets its weights again. */
export async function finished(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  world.config = stage.config({ iterations: 2, evaluation: { tasks: ['held-out'], every: 1 } });
  let isLost = false;
  world.runAgent = async ({ trialId }) => {
    if (isLost || !trialId.includes('-0.1-')) return { outcome: null, seconds: {} };
    isLost = true;
    world.poolWhole = false;
    return { outcome: 'infra_error', reason: 'connection reset', seconds: {} };
  };
  await stage.inMemory(world, async () => {
    await stage.start('finished', { iterations: 2 });
    await stage.ended('finished');
  });
}

/** A run whose run file is refused, and a run that fails because even its block cannot be written, and is resumed. */
export async function failed(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  let isBroken = true;
  world.runAgent = async ({ trialId }) =>
    isBroken && trialId.endsWith('1-1') ? { outcome: 'infra_error', reason: 'the disk is full', seconds: {} } : { outcome: null, seconds: {} };
  world.trainStep = async () => void (isBroken && fails('the disk is full'));
  const body = async () => {
    await stage.start('refused', { tasks: ['/no/such/folder'] });
    await stage.ended('refused');
    await stage.start('failed', { max_attempts: 1 });
    await stage.ended('failed');
    isBroken = false;
    await resumeRun(stage.connected, 'failed');
    await stage.ended('failed');
  };
  await stage.over(world, body, ({ setRunStatus }) => ({
    setRunStatus: async (input: Parameters<typeof setRunStatus>[0]) => (isBroken && input.status === 'blocked' ? fails('the disk is full') : setRunStatus(input)),
  }));
}

/** A run that is cancelled while agents run and is then resumed, and a run that is cancelled while it is blocked. */
export async function cancelled(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { held, free } = hold(world, /^cancelled/);
  await stage.over(world, async () => {
    const run = await stage.start('cancelled');
    await until(() => held.size === 4);
    await run.cancel();
    await stage.ended('cancelled');
    free();
    await resumeRun(stage.connected, 'cancelled');
    await stage.ended('cancelled');

    world.trainStep = async () => fails('the disk is full');
    const waiting = await stage.start('given-up');
    await until(() => stage.phaseIs('given-up', 'blocked'));
    await waiting.cancel();
    await stage.ended('given-up');
  });
}

/** A run that is blocked by its train step and resumed, then blocked by a publication that goes back to the version before, releases its engines, and is resumed. */
export async function blocked(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  let isBroken = true;
  let isRefusing = true;
  world.trainStep = async () => void (isBroken && fails('the disk is full'));
  world.publish = ({ weight_version: to }) => (isRefusing && to.endsWith('@1') ? { ok: false, error: 'its canary disagrees' } : {});
  await stage.over(world, async () => {
    const run = await stage.start('blocked');
    await until(() => stage.phaseIs('blocked', 'blocked'));
    isBroken = false;
    await run.executeUpdate('resume');
    await until(() => stage.phaseIs('blocked', 'blocked'));
    await run.executeUpdate('configure', { args: [{ release_engines_after: 0 }] });
    await until(() => world.count('releaseUnusedPool') === 1);
    isRefusing = false;
    await run.executeUpdate('resume');
    await stage.ended('blocked');
  });
}

/** A run that is terminated while agents run and started again: it follows the groups that still run to their end. The same for an evaluation. */
export async function terminated(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { held, free } = hold(world, /^terminated/);
  await stage.over(world, async () => {
    const run = await stage.start('terminated');
    await until(() => held.size === 4);
    await run.terminate();
    await resumeRun(stage.connected, 'terminated');
    await until(() => stage.phaseIs('terminated', 'rollout'));
    free();
    await stage.ended('terminated');
  });

  const evaluating = hold(world, /^unevaluated-eval/);
  world.config = stage.config({ evaluation: { tasks: ['held-out'], after: false } });
  await stage.inMemory(world, async () => {
    const run = await stage.start('unevaluated');
    await until(() => evaluating.held.size === 4);
    await run.terminate();
    await startRun(stage.client, 'unevaluated', stage.config(), { resume: true });
    await until(() => stage.phaseIs('unevaluated', 'evaluation'));
    evaluating.free();
    await stage.ended('unevaluated');
  });
}

/** A run whose second iteration is redone while agents run, and again after its end. */
export async function reset(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { held, free } = hold(world, /-1\.1-/);
  await stage.over(world, async () => {
    await stage.start('reset', { iterations: 2 });
    await until(() => held.size === 4);
    await redoRun(stage.connected, 'reset');
    await stage.ended('reset');
    free();
    await redoRun(stage.connected, 'reset');
    await stage.ended('reset');
  });
}
