import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { trainerSettingsOf } from '../../core/run-config/trainer-settings.ts';
import type { Checkpoint, ReplicaReport, TrainStepResult } from '../../core/gpu-contract.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { INSTALLS } from '../../cli/folders.ts';
import { until } from '../support/harness/until.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';

const environment = useTemporal();

const announced = z.object({
  model: z.string(),
  engine: z.string(),
  adapter_engine: z.string(),
  trainer_server: z.string(),
  batches: z.array(z.object({ path: z.string(), sha256: z.string() })),
});

/** Starts the Python worker on this test's Temporal. Each train step has the next fault of `faults`. */
async function startFaultyWorker(faults: string[]) {
  const home = mkdtempSync(path.join(tmpdir(), 'trialgate-faults-'));
  const { namespace } = environment.client.options;
  const at = ['--temporal-address', environment.address, '--namespace', namespace];
  const args = [...at, '--home', home, '--faults', faults.join()];
  const child = spawn(INSTALLS.python, [path.join(INSTALLS.gpuWorkers, 'faulty_worker.py'), ...args], {
    env: { ...process.env, PYTHONPATH: INSTALLS.gpuWorkers, PYTHONDONTWRITEBYTECODE: '1' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const first = await lines.next();
  return {
    ...announced.parse(JSON.parse(first.done ? 'null' : first.value)),
    home,
    [Symbol.asyncDispose]: async () => {
      child.stdin.end();
      await closed;
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Returns the activities of a run whose loads, train steps and publications are those of the Python worker, and what they made. */
function trainedBy(
  worker: z.output<typeof announced> & { home: string },
  id: string,
  world: FakeWorld,
  engine: string,
) {
  const versions: (Checkpoint & { skipped?: TrainStepResult['skipped'] })[] = [];
  const reports: ReplicaReport[] = [];
  const versionOf = (version: number) => {
    const found = versions[version];
    if (!found) throw new Error(`version ${version} has not been made`);
    return {
      weight_version: `${id}@${version}`,
      checkpoint: found.checkpoint,
      checkpoint_sha256: found.checkpoint_sha256,
      canary: found.canary,
    };
  };
  const general = world.general();
  const trialgate = {
    ...general,
    planBase: async () => {
      const { head_dtype, lora_rank, lora_alpha, target_modules, seed, trainer_server } = world.config;
      const settings = { head_dtype, lora_rank, lora_alpha, target_modules, seed, trainer_server };
      return { run_id: id, model: worker.model, home: worker.home, ...settings };
    },
    recordBase: async ({ base }: { base: Checkpoint }) => void (versions[0] = base),
    assembleBatch: async ({ iteration }: { iteration: number }) => {
      const [batch, parent] = [worker.batches[iteration], versionOf(iteration).checkpoint];
      const named = { run_id: id, version: iteration + 1, parent_checkpoint: parent, home: worker.home };
      return {
        parentVersion: iteration,
        step: {
          ...named,
          batch_path: batch?.path,
          batch_sha256: batch?.sha256,
          trainer: trainerSettingsOf(world.config),
        },
      };
    },
    recordVersion: async ({ version, step }: { version: number; step: TrainStepResult }) =>
      void (versions[version] = step),
    beginPublication: async ({ version }: { version: number }) => ({
      ...{
        ...versionOf(version),
        replicas: [engine],
        min_replicas: 1,
        needed: 1,
        canary_tolerance: version > 0 ? 0 : null,
      },
      previous:
        version > 0 ? { ...versionOf(version - 1), checksums: { [engine]: reports[version - 1]?.checksum } } : null,
    }),
    endPublication: async (input: { version: number; reports: ReplicaReport[] }) => {
      for (const report of input.reports) if (report.ok) reports[input.version] = report;
      return general.endPublication({ ...input });
    },
  };
  return { trialgate, versions, reports };
}

/** The faults that skip a step, in the order of the steps, each with its reason. */
const SKIPPED = {
  reward: 'trial t0-0 has a reward that is not finite',
  loss: 'the loss is nan',
  gradient: 'the norm of the gradient is inf',
  weight: 'a weight is nan',
  canary: 'a log-probability of the canary is not finite',
};
/** The faults that block the run after these. None is retryable, because a step that is tried again would take the next step's fault. */
const BLOCKED = {
  loss: 'neither did the 5 before it: check these trials',
  memory: "the device's memory is full (",
  result: 'its result has a number that is not finite',
};

let worker: Awaited<ReturnType<typeof startFaultyWorker>>;
beforeAll(async () => {
  worker = await startFaultyWorker([...Object.keys(SKIPPED), ...Object.keys(BLOCKED)]);
});
afterAll(() => worker[Symbol.asyncDispose]());

const FAULTS = 'faults';
const world = new FakeWorld();
const last = Object.keys(SKIPPED).length;
const trainer = () => {
  const { trialgate, versions, reports } = trained;
  return { versions, reports, activities: { trialgate, sandboxes: world.sandboxes(), host: world.host() } };
};
let trained: ReturnType<typeof trainedBy>;

/** Expects that the run is blocked for the reason at this place of `BLOCKED`, with the version that the last good step made. */
async function expectBlocked(place: number): Promise<void> {
  await until(() => world.count('blocked') === place + 1);
  expect(world.blockedReason).toContain(Object.values(BLOCKED)[place]);
  const run = environment.client.workflow.getHandle(FAULTS);
  expect(await run.query<RunStatusReport>('status')).toMatchObject({
    phase: 'blocked',
    reason: world.blockedReason,
    policy_version: last,
  });
  expect(trained.versions).toHaveLength(last + 1);
}

test('a train step with a number that is not finite is skipped, and too many in a row block the run', async () => {
  world.config = runConfig.parse({
    model: worker.model,
    tasks: ['t'],
    iterations: last + 1,
    groups_per_iteration: 1,
    group_size: 2,
    max_skipped_steps: last,
  });
  trained = trainedBy(worker, FAULTS, world, worker.engine);
  const { activities, versions } = trainer();
  await withWorkers(environment, activities, async () => {
    await environment.client.workflow.start('trainRun', { workflowId: FAULTS, taskQueue: 'trialgate', args: [{}] });
    await expectBlocked(0);
  });
  const [base, ...skipped] = versions;
  expect(skipped.map((version) => version.skipped)).toEqual(
    Object.values(SKIPPED).map((reason) => expect.stringContaining(reason)),
  );
  expect(skipped.map(({ canary }) => canary)).toEqual(skipped.map(() => base?.canary));
});

test('a step that fills the memory, and one whose result is not JSON, block the run; resumed, it trains with the next step', async () => {
  const { activities, versions, reports } = trainer();
  await withWorkers(environment, activities, async () => {
    const run = environment.client.workflow.getHandle(FAULTS);
    for (const place of [1, 2]) {
      await run.executeUpdate('resume');
      await expectBlocked(place);
    }
    await run.executeUpdate('resume');
    expect(await run.result()).toMatchObject({ phase: 'completed', policy_version: last + 1 });
  });
  const [base, ...steps] = versions;
  expect(steps.at(-1)).toMatchObject({ skipped: null });
  expect(steps.at(-1)?.canary).not.toEqual(base?.canary);
  expect(steps.map(({ metrics }) => metrics['actor/updates'])).toEqual([0, 0, 0, 0, 0, 1]);
  expect(reports.map(({ ok, weight_version }) => [ok, weight_version])).toEqual(
    versions.map((_, version) => [true, `${FAULTS}@${version}`]),
  );
});

test('a trainer server that forgets its models in a step makes that step in the next attempt', async () => {
  const served = new FakeWorld();
  served.config = runConfig.parse({
    model: worker.model,
    tasks: ['t'],
    iterations: 2,
    groups_per_iteration: 1,
    group_size: 2,
    lora_rank: 8,
    trainer_server: { url: worker.trainer_server },
  });
  const remote = trainedBy({ ...worker, batches: worker.batches.slice(1) }, 'served', served, worker.adapter_engine);
  const activities = { trialgate: remote.trialgate, sandboxes: served.sandboxes(), host: served.host() };
  await withWorkers(environment, activities, async () => {
    const started = { workflowId: 'served', taskQueue: 'trialgate', args: [{}] };
    const run = await environment.client.workflow.start('trainRun', started);
    expect(await run.result()).toMatchObject({ phase: 'completed', policy_version: 2 });
  });
  // Two steps, one of them in two attempts.
  const state = await (await fetch(`${worker.trainer_server}/state`)).json();
  expect(state).toMatchObject({ models: [], operations: { load_weights: 3 } });
  expect(remote.versions.map(({ metrics }) => metrics['actor/updates'])).toEqual([undefined, 1, 1]);
  expect(new Set(remote.versions.map(({ canary }) => canary.logprobs.join())).size).toBe(3);
  expect(remote.reports.map(({ ok, weight_version }) => [ok, weight_version])).toEqual(
    remote.versions.map((_, version) => [true, `served@${version}`]),
  );
});
