import { ApplicationFailure } from '@temporalio/common';
import { recordCalls } from '../../../store/queries/record-calls.ts';
import { callRecord } from '../../support/scenarios/call-record.ts';
import { FakeWorld } from '../../support/fakes/fake-activities.ts';
import { closingDuringPoll } from '../../support/fakes/fake-faults.ts';
import { until } from '../../support/harness/until.ts';
import { hold, type Stage } from '../stage.ts';

const carryOver = { group_size: 3, max_staleness: 1, group_quorum: 2, stragglers: 'carry_over' };

/** A straggler that a later step uses, and one that becomes stale. */
export async function carriedOver(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { free } = hold(world, /^carried-0\.1-0-2$|^stale-0\.1-0-2$/);
  await stage.over(world, async () => {
    await stage.start('carried', { ...carryOver, iterations: 3 });
    await until(() => stage.isDone('carried', 0));
    free();
    await stage.ended('carried');

    const last = hold(world, /^stale-0\.1-0-2$/);
    const { runAgent } = world;
    // A trial is as old as the version that sampled its first call.
    world.runAgent = async (input) => {
      const { trialId, attempt } = input;
      if (trialId.startsWith('stale')) await recordCalls(stage.db, [callRecord({ trialId, attempt, choice: { policyVersion: Number(trialId.split('-')[1]?.split('.')[0]) } })]);
      return runAgent(input);
    };
    await stage.start('stale', { ...carryOver, iterations: 4 });
    await stage.ended('stale');
    await until(() => last.held.size === 1 && stage.isCut('stale-0.1-0-2'));
    await stage.ended('stale/0.1/0');
  });
}

const asynchronous = { group_size: 4, max_staleness: 1, group_quorum: 2, stragglers: 'carry_over', max_concurrent_trials: 8, max_stale_stragglers: 1 };

/** The settings that docs/run-file.md recommends for long tails: each straggler's end is reported. Then the same with groups without spread replaced. */
export async function reportedStragglers(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { held, free } = hold(world, /-0\.1-[01]-[23]$/);
  await stage.over(world, async () => {
    await stage.start('told', { ...asynchronous, iterations: 3 });
    await until(() => held.size === 4);
    await until(() => stage.isDone('told', 0));
    free();
    await stage.ended('told');
    await stage.start('replaced', { ...asynchronous, iterations: 2, filter_groups: { enable: true, max_replaced: 1 } });
    await stage.ended('replaced');
  });
}

/** Groups that end before their last trial, by a quorum and by over-sampling. */
export async function quorum(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  hold(world, /-2$/);
  await stage.over(world, async () => {
    await stage.start('quorum', { group_size: 3, group_quorum: 2, stragglers: 'cancel' });
    await stage.ended('quorum');
    await stage.start('over-sampled', { over_sampling: 1 });
    await stage.ended('over-sampled');
  });
}

/** A trial, a group and an iteration past their deadlines. */
export async function late(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  hold(world, /-1$/);
  await stage.over(world, async () => {
    await Promise.all([
      stage.start('late-trials', { deadlines: { trial: 1 } }),
      stage.start('late-groups', { deadlines: { group: 2 } }),
      stage.start('late-iteration', { deadlines: { iteration: 2 } }),
    ]);
    for (const id of ['late-trials', 'late-groups', 'late-iteration']) await stage.ended(id);
  });
}

/** Trials that wait for their engine: one gets more time and then uses it up, one is excused at its limit, and one at its group's deadline. */
export async function engineWaits(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  hold(world, /^waited-0|^waited-cut-.*-1$/);
  const body = async () => {
    await Promise.all([
      stage.start('waited', { deadlines: { trial: 2, trial_at_most: 4 }, max_attempts: 2, groups_per_iteration: 1 }),
      stage.start('waited-cut', { deadlines: { trial: 60, group: 3 }, groups_per_iteration: 1 }),
    ]);
    for (const id of ['waited', 'waited-cut']) await stage.ended(id);
  };
  let asked = 0;
  await stage.over(world, body, () => ({
    readWait: async ({ trialId }: { trialId: string }) => {
      if (trialId.startsWith('waited-cut')) return { seconds: 3, isExcuse: true };
      return trialId.endsWith('-0') ? { seconds: asked++ === 0 ? 1.5 : 1, isExcuse: false } : { seconds: 10, isExcuse: true };
    },
  }));
}

/** Trials whose host, engine, sandbox or verifier is lost, until they are out of attempts. */
export async function retried(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const lost = (message: string): never => {
    throw ApplicationFailure.create({ message, nonRetryable: true });
  };
  world.runAgent = async ({ trialId, attempt }) => {
    if (trialId.endsWith('0-0') && attempt === 1) lost('its host is gone');
    if (trialId.endsWith('0-1')) return { outcome: 'infra_error', reason: 'connection reset', seconds: {} };
    return { outcome: trialId.endsWith('1-0') ? 'agent_error' : null, seconds: {} };
  };
  const body = async () => {
    await stage.start('retried', { max_attempts: 2 });
    await stage.ended('retried');
  };
  await stage.over(world, body, ({ openTrial }) => ({
    openTrial: async (input: Parameters<typeof openTrial>[0]) => (input.trialId.endsWith('1-1') && input.attempt === 1 ? lost('no room') : openTrial(input)),
  }));
}

/** Every update that a run accepts. One of the trials waits for a sandbox. */
export async function operated(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  const { held, free } = hold(world, /-0\.1-0-[01]$/);
  const opened = Promise.withResolvers<void>();
  const body = async () => {
    const run = await stage.start('operated', { iterations: 5 });
    await until(() => held.size === 2);
    await run.executeUpdate('configure', { args: [{ group_size: 'many' }] }).catch(() => {});
    await run.executeUpdate('configure', { args: [{ group_size: 3, iterations: 4 }] });
    await run.executeUpdate('extend', { args: [{ trial: 'operated-0.1-0-1', seconds: 600 }] });
    await run.executeUpdate('extend', { args: [{ trial: 'operated-0.1-1-0', seconds: 600 }] });
    opened.resolve();
    await run.executeUpdate('skip', { args: [{ trial: 'operated-0.1-0-0' }] });
    await run.executeUpdate('skip', { args: [{ trial: 'nobody' }] }).catch(() => {});
    await run.executeUpdate('pause', { args: [{}] });
    free();
    await until(() => stage.phaseIs('operated', 'paused'));
    await run.executeUpdate('resume');
    await until(() => stage.isDone('operated', 0));
    const next = stage.client.workflow.getHandle('operated');
    await next.executeUpdate('pause', { args: [{ seconds: 1 }] });
    await next.executeUpdate('stop');
    await stage.ended('operated');
  };
  await stage.over(world, body, ({ openTrial }) => ({
    openTrial: async (input: Parameters<typeof openTrial>[0]) => {
      if (input.trialId === 'operated-0.1-1-0') await opened.promise;
      return openTrial(input);
    },
  }));
}

/** A group that closes while the run polls its groups. */
export async function closedDuringPoll(stage: Stage): Promise<void> {
  const world = new FakeWorld();
  world.config.iterations = 1;
  await stage.inMemory(world, async () => {
    await stage.start('closed-during-poll');
    await stage.ended('closed-during-poll');
  }, closingDuringPoll(world, stage.client, 'closed-during-poll').own);
}
