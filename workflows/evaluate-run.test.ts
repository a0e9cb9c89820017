import { ApplicationFailure } from '@temporalio/common';
import { expect, test } from 'vitest';
import type { BorrowedPool } from '../activities/pool/borrow-pool.ts';
import type { EvaluationRequest, PlannedEvaluation } from '../activities/evaluation/plan-evaluation-on-demand.ts';
import { until } from '../tests/support/harness/until.ts';
import type { RunStatusReport } from './messages.ts';
import { FakeWorld } from '../tests/support/fakes/fake-activities.ts';
import { TirelessAgents } from '../tests/support/fakes/fake-faults.ts';
import { withWorkers } from '../tests/support/harness/workflow-worker.ts';
import { useTemporal } from '../tests/support/harness/use-temporal.ts';

const environment = useTemporal();
let serial = 0;

const newId = () => `evaluated${++serial}`;

const plan = ({ runId, version }: { runId: string; version: number }): PlannedEvaluation => {
  const group = {
    runId,
    kind: 'eval' as const,
    iteration: null,
    take: null,
    ordinal: 0,
    size: 2,
    task: 't',
    agent: 'a',
    policyVersion: version,
  };
  return {
    id: `eval@${version}.1`,
    plans: [{ ...group, id: `${runId}/eval@${version}.1/0`, trialPrefix: `${runId}-eval.${version}.1-0` }],
    deadlineSeconds: 600,
  };
};

function during<T>(world: FakeWorld, borrowed: () => BorrowedPool, body: () => Promise<T>): Promise<T> {
  const own = {
    borrowPool: async () => borrowed(),
    planEvaluationOnDemand: async (input: { runId: string; version: number }) => plan(input),
    returnPool: async () => void world.log.push('return'),
  };
  return withWorkers(
    environment,
    { trialgate: { ...world.general(), ...own }, sandboxes: world.sandboxes(), host: world.host(), gpu: world.gpu() },
    body,
  );
}

const evaluate = (request: EvaluationRequest) =>
  environment.client.workflow.start('evaluateRun', {
    workflowId: `${request.runId}/evaluate`,
    taskQueue: 'trialgate',
    args: [request],
  });

test('a run’s publication waits until an evaluation on demand has ended, and the run’s status says so', async () => {
  const world = new FakeWorld();
  const runId = newId();
  world.config.iterations = 1;
  const trained = Promise.withResolvers<void>();
  let sampling = 0;
  world.runAgent = async ({ trialId }) => {
    if (trialId.includes('eval.')) {
      sampling++;
      await trained.promise;
    }
    return { outcome: null, seconds: {} };
  };
  let evaluation: Promise<unknown> | undefined;
  world.trainStep = async () => {
    evaluation ??= evaluate({ runId }).then((handle) => handle.result());
    await until(() => sampling >= 2);
  };
  await during(
    world,
    () => ({ version: 0, published: true }),
    async () => {
      const run = await environment.client.workflow.start('trainRun', {
        workflowId: runId,
        taskQueue: 'trialgate',
        args: [{}],
      });
      await until(
        async () =>
          (await run.query<RunStatusReport>('status')).waits_for?.startsWith('its turn at the engines') === true,
      );
      world.publish = async () => {
        await until(
          async () => (await run.query<RunStatusReport>('status')).waits_for === 'engines to confirm version 1',
        );
        return {};
      };
      trained.resolve();
      await Promise.all([run.result(), evaluation]);
    },
  );
  const steps = world.log.filter((entry) => /^(publish|return)|eval@.*\/0$/.test(entry));
  expect(steps).toEqual(['publish 0 1', `end ${runId}/eval@0.1/0`, 'return', 'publish 1 1']);
});

test('an evaluation of an ended run publishes the policy version first, and again to an engine that restarted', async () => {
  const world = new FakeWorld();
  let lost = false;
  world.runAgent = async () => {
    if (lost) return { outcome: null, seconds: {} };
    lost = true;
    world.poolWhole = false;
    return { outcome: 'infra_error', reason: 'connection reset', seconds: {} };
  };
  const runId = newId();
  const done = await during(
    world,
    () => ({ version: 3, published: false }),
    async () => (await evaluate({ runId, version: 3 })).result(),
  );
  expect(done).toEqual({ runId, id: 'eval@3.1', version: 3 });
  expect(world.log.filter((entry) => /^(publish|return)/.test(entry))).toEqual([
    'publish 3 1',
    'publish 3 1',
    'return',
  ]);
});

test('an evaluation on demand that is cancelled stops its agents and returns its engines', async () => {
  const world = new FakeWorld();
  const agents = new TirelessAgents();
  world.runAgent = agents.run;
  await during(
    world,
    () => ({ version: 0, published: true }),
    async () => {
      const handle = await evaluate({ runId: newId() });
      await until(() => agents.started >= 2);
      await handle.cancel();
      await expect(handle.result()).rejects.toThrow();
    },
  );
  expect(agents.stopped).toBe(2);
  expect(world.count('return')).toBe(1);
});

test('an evaluation on demand that is refused fails with the reason', async () => {
  const world = new FakeWorld();
  const refuse = (): BorrowedPool => {
    throw ApplicationFailure.create({ type: 'bad_input', message: 'the engines have version 4', nonRetryable: true });
  };
  const result = during(world, refuse, async () => (await evaluate({ runId: newId(), version: 1 })).result());
  await expect(result).rejects.toMatchObject({
    cause: { cause: { cause: { message: 'the engines have version 4' } } },
  });
  expect(world.count('return')).toBe(1);
});

test('an evaluation that waits for engines does not keep a run from publishing meanwhile', async () => {
  const world = new FakeWorld();
  const runId = newId();
  let asked = 0;
  const busy = (): BorrowedPool => {
    asked++;
    throw ApplicationFailure.create({
      type: 'pool_busy',
      message: 'engines belong to another run',
      nonRetryable: true,
    });
  };
  await during(world, busy, async () => {
    const evaluation = await evaluate({ runId });
    const turn = environment.client.workflow.getHandle(`${runId}/publish`);
    await until(() => asked >= 1);
    await expect(turn.result()).rejects.toThrow();
    expect((await evaluation.describe()).status.name).toBe('RUNNING');
    await evaluation.cancel();
    await expect(evaluation.result()).rejects.toThrow();
  });
});
