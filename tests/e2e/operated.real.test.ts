import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import proto from '@temporalio/proto';
import { and, eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Database } from '../../store/database.ts';
import { attempts, calls, policyVersions, replicas, trials } from '../../store/schema.ts';
import { until as eventually } from '../support/harness/until.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { readRunRecord, type RunRecord } from '../../cli/show/run-record.ts';
import type { UnderWay } from '../../cli/show/under-way.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { chanceTasks } from '../support/scenarios/chance-tasks.ts';
import type { TestDeployment } from '../support/harness/deployment.ts';
import { whileEnginePaused } from '../support/harness/engine-pause.ts';
import { shallowDeployment, type ShallowDeployment } from '../support/harness/shallow-deployment.ts';
import { firstReplyOf, recordWhen, temporalWorkflow } from '../support/harness/watched-runs.ts';
import { withDeployment } from '../../cli/run/connect.ts';

/** The model has 4 layers, because operating a run is the same at any depth. */
let place: ShallowDeployment;
let trainingTasks: string;
let deployment: TestDeployment;
let db: Database;

beforeAll(async () => {
  // Agents that start together also end together in the engine's batch, so these start one after the other.
  place = await shallowDeployment({ TRIALGATE_SANDBOXES_PER_SECOND: '4' });
  ({ deployment, db } = place);
  trainingTasks = await chanceTasks(join(place.folder, 'tasks'));
});
afterAll(() => place?.remove());

const EVALUATION = { tasks: [join(REPOSITORY, 'tasks/eval')], samples: 1, before: false };
const WITHOUT_EVALUATION = { ...EVALUATION, after: false };
const runDefaults = () => ({
  model: place.model,
  tasks: [trainingTasks],
  agents: ['oneshot'],
  iterations: 2,
  groups_per_iteration: 2,
  group_size: 3,
  max_response_length: 24,
  evaluation: EVALUATION,
});

async function runFile(name: string, changes: object = {}): Promise<string> {
  const file = join(deployment.home, name);
  await writeFile(file, JSON.stringify({ ...runDefaults(), ...changes }));
  return file;
}

const temporal = (...args: string[]) => temporalWorkflow(deployment, ...args);
const until = (run: string, done: (record: RunRecord) => boolean) => recordWhen(db, run, done);

const failureOf = (command: Promise<unknown>): Promise<{ code: number; stderr: string }> =>
  command.then(
    () => ({ code: 0, stderr: '' }),
    (error: { code: number; stderr: string }) => ({ code: error.code, stderr: error.stderr }),
  );

test('Temporal’s own CLI starts and queries a run with the same results as trialgate', async () => {
  const file = await runFile('by-temporal.json', { keep_checkpoints_at_end: 'all' });
  await temporal(
    'start',
    '--type',
    'trainRun',
    '--task-queue',
    'trialgate',
    '--workflow-id',
    'by-temporal',
    '--input-file',
    file,
  );
  expect(await temporal('query', '--workflow-id', 'by-temporal', '--type', 'status')).toContain('"by-temporal"');
  const first = await until('by-temporal', (record) => record.status === 'completed');
  expect(
    first.iterations.map((row) => [row.iteration, row.take, row.status, row.policy_version, row.trained_version]),
  ).toEqual([
    [0, 1, 'done', 0, 1],
    [1, 1, 'done', 1, 2],
  ]);
  expect(first.evaluations.map((row) => row.policy_version)).toEqual([2]);
  expect(await auditRun(db, 'by-temporal', 2)).toEqual([]);
});

test('Temporal’s own CLI resets a run, whose last iteration is then trained anew', async () => {
  await temporal(
    'reset',
    '--workflow-id',
    'by-temporal',
    '--type',
    'LastContinuedAsNew',
    '--reapply-exclude',
    'All',
    '--reason',
    'redo',
  );
  const again = await until('by-temporal', (record) => record.status === 'completed' && record.iterations.length === 3);
  expect(
    again.iterations.map((row) => [row.iteration, row.take, row.status, row.policy_version, row.trained_version]),
  ).toEqual([
    [0, 1, 'done', 0, 1],
    [1, 1, 'superseded', 1, 2],
    [1, 2, 'done', 1, 3],
  ]);
  expect(again.iterations[1]?.batch?.sha256).not.toBe(again.iterations[2]?.batch?.sha256);
});

test('`redo` trains an iteration anew as Temporal’s reset does, and no version number is used twice', async () => {
  await deployment.trialgate(
    'train',
    await runFile('redo.json', { iterations: 1, evaluation: WITHOUT_EVALUATION }),
    '--run',
    'redo',
  );
  await deployment.trialgate('redo', 'redo');
  const record = await until('redo', (each) => each.status === 'completed' && each.iterations.length === 2);
  expect(record.iterations.map((row) => [row.take, row.status, row.policy_version, row.trained_version])).toEqual([
    [1, 'superseded', 0, 1],
    [2, 'done', 0, 2],
  ]);
  const printed: RunRecord = JSON.parse(await deployment.trialgate('show', 'redo', '--json'));
  expect(printed.iterations[1]?.replicas[0]?.weight_version).toBe('redo@2');
  expect(await deployment.trialgate('show', 'redo-0.2-0-0')).toContain('task ');
});

test('a cancelled run leaves no agents behind, and keeps its finished trials when it is resumed', async () => {
  await deployment.trialgate(
    'train',
    await runFile('cancelled.json', { group_size: 6 }),
    '--run',
    'cancelled',
    '--detach',
  );
  await firstReplyOf(db, 'cancelled');
  // The engine answers no other agent meanwhile, so some trials have finished and agents wait when the run is cancelled.
  await whileEnginePaused(place.engineSocket, async () => {
    await until('cancelled', (record) => (record.iterations[0]?.trials.scored ?? 0) > 0);
    await temporal('cancel', '--workflow-id', 'cancelled');
    await until('cancelled', (record) => record.status === 'cancelled');
    expect(await openSandboxes('cancelled')).toEqual([]);
  });
  const cut = await db
    .select()
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(and(eq(trials.runId, 'cancelled'), eq(attempts.outcome, 'cancelled')));
  expect(cut).not.toEqual([]);
  await deployment.trialgate('resume', 'cancelled');
  const record = await until('cancelled', (each) => each.status === 'completed');
  expect(record.iterations.map((row) => [row.iteration, row.take, row.status])).toEqual([
    [0, 1, 'done'],
    [1, 1, 'done'],
  ]);
  const faults = await auditRun(db, 'cancelled', 2);
  expect(faults).toEqual([]);
});

test('a straggler that is cancelled at its group’s quorum leaves no sandbox, and its call ends as cancelled', async () => {
  const cut = {
    iterations: 1,
    groups_per_iteration: 1,
    group_size: 12,
    group_quorum: 1,
    stragglers: 'cancel',
    evaluation: WITHOUT_EVALUATION,
  };
  await deployment.trialgate('train', await runFile('quorum.json', cut), '--run', 'quorum', '--detach');
  await firstReplyOf(db, 'quorum');
  const cancelledCalls = () =>
    db
      .select()
      .from(calls)
      .innerJoin(trials, eq(trials.id, calls.trialId))
      .where(and(eq(trials.runId, 'quorum'), eq(calls.status, 'cancelled')));
  await whileEnginePaused(place.engineSocket, () => eventually(async () => (await cancelledCalls()).length > 0));
  await until('quorum', (record) => record.status === 'completed');
  const rows = await db
    .select()
    .from(trials)
    .where(and(eq(trials.runId, 'quorum'), eq(trials.outcome, 'cancelled')));
  expect(rows.map(({ reason }) => reason)).toContain('enough trials of the group had ended');
  // The gateway aborts the engine's request when an agent's connection ends. The hang-up tests count that at the engine.
  for (const { calls: call, trials: trial } of await cancelledCalls())
    expect([call.reason, trial.outcome]).toEqual([expect.stringContaining('agent_disconnected'), 'cancelled']);
  expect(await openSandboxes('quorum')).toEqual([]);
});

test('every completed call of the runs is recorded with all that training on it needs', async () => {
  const rows = await db.select().from(calls).innerJoin(trials, eq(trials.id, calls.trialId));
  // The trials that `train` tries before a run belong to no run.
  const completed = rows.filter((row) => row.calls.status === 'completed' && row.trials.runId !== null);
  expect(completed.length).toBeGreaterThan(0);
  for (const { calls: call } of completed) {
    expect(call.untrainable).toBeNull();
    expect(call.completionTokenIds?.length).toBe(call.logprobs?.length);
    expect(call.promptTokenIds?.length).toBeGreaterThan(0);
    expect(call.policyVersion).not.toBeNull();
  }
});

test('no workflow history in Temporal holds the secret, the admin key, PostgreSQL’s password or an attempt’s key', async () => {
  const { secret, adminKey, databaseUrl } = connectionsOf(deployment.config);
  const histories = await withDeployment(deployment.config, async ({ client }) => {
    let text = '';
    for await (const { workflowId, runId } of client.workflow.list()) {
      const { History } = proto.temporal.api.history.v1;
      text += Buffer.from(
        History.encode(await client.workflow.getHandle(workflowId, runId).fetchHistory()).finish(),
      ).toString('latin1');
    }
    return text;
  });
  expect(histories).toContain('cancelled/1.1');
  const words = [secret, adminKey, new URL(databaseUrl).password].filter((word) => histories.includes(word));
  expect([...words, ...(histories.match(/tg-\d+-[\w-]+/g) ?? [])]).toEqual([]);
});

test('a person can inspect a run that is under way, skip one of its trials and change its settings', async () => {
  const file = await runFile('operated.json', {
    agents: ['repair'],
    iterations: 3,
    group_size: 4,
    evaluation: WITHOUT_EVALUATION,
  });
  const skipped = 'operated-0.1-0-3';
  await deployment.trialgate('train', file, '--run', 'operated', '--detach');
  await until('operated', (record) => (record.iterations[0]?.trials.open ?? 0) > 0);
  // A command takes seconds on a busy machine. No trial ends by itself meanwhile.
  await whileEnginePaused(place.engineSocket, async () => {
    await deployment.trialgate('skip', 'operated', skipped);
    const shown: RunRecord & { under_way: UnderWay } = JSON.parse(
      await deployment.trialgate('show', 'operated', '--json'),
    );
    expect(shown.under_way).toMatchObject({
      phase: 'rollout',
      waits_for: expect.stringContaining('trials for the batch'),
    });
    for (const { trials: standing, until: deadline } of shown.under_way.groups) {
      expect(standing.waiting + standing.running + standing.ended).toBe(4);
      expect(Date.parse(deadline ?? '')).toBeGreaterThan(Date.now());
    }
    const refused = await failureOf(deployment.trialgate('configure', 'operated', 'iterations=1', 'optim.lr=fast'));
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('optim.lr') });
    expect(
      await deployment.trialgate('configure', 'operated', 'iterations=1', 'optim.lr=1e-4', 'evaluation.samples=2'),
    ).toContain('changed');
  });
  const record = await until('operated', (each) => each.status === 'completed');
  expect(record.iterations).toMatchObject([
    { iteration: 0, status: 'done', trained_version: 1, batch: { trials: 7 }, metrics: { 'actor/lr': 1e-4 } },
  ]);
  expect(record.config).toMatchObject({ iterations: 1, optim: { lr: 1e-4 }, evaluation: { samples: 2 } });
  expect((await db.select().from(trials).where(eq(trials.id, skipped)))[0]).toMatchObject({
    outcome: 'cancelled',
    reason: 'skipped by a person',
  });
  expect(await failureOf(deployment.trialgate('skip', 'operated', skipped))).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('run operated is not under way'),
  });
});

test('a fork begins a run from a version of another run, with that version’s weights and settings', async () => {
  await deployment.trialgate(
    'fork',
    'operated@1',
    '--run',
    'forked',
    '--iterations',
    '1',
    'groups_per_iteration=1',
    'group_size=2',
    'max_response_length=16',
  );
  const record = await readRunRecord(db, 'forked');
  expect(record).toMatchObject({
    status: 'completed',
    forked_from: 'operated@1',
    iterations: [{ policy_version: 0, trained_version: 1, groups: 1 }],
    config: { optim: { lr: 1e-4 } },
  });
  const shaOf = async (run: string, version: number) =>
    (
      await db
        .select()
        .from(policyVersions)
        .where(and(eq(policyVersions.runId, run), eq(policyVersions.version, version)))
    )[0]?.checkpointSha256;
  expect(await shaOf('forked', 0)).toBe(await shaOf('operated', 1));
  expect(await auditRun(db, 'forked', 1)).toEqual([]);
});

test('a rescoring trains on a finished batch without any model call, and the version that it makes can be evaluated', async () => {
  const before = (await db.select().from(calls)).length;
  await deployment.trialgate(
    'rescore',
    'operated',
    '--iteration',
    '0',
    '--reward-weights',
    'reward=0.5',
    '--run',
    'rescored',
  );
  expect(await readRunRecord(db, 'rescored')).toMatchObject({
    status: 'completed',
    rescores: 'operated/0.1',
    iterations: [{ trained_version: 1, batch: { trials: 7 } }],
    config: { reward_weights: { reward: 0.5 } },
  });
  expect((await db.select().from(calls)).length).toBe(before);
  const evaluation: RunRecord['evaluations'][number] = JSON.parse(
    await deployment.trialgate('evaluate', 'rescored@1', '--samples', '1', '--json'),
  );
  expect(evaluation).toMatchObject({
    id: 'eval@1.1',
    policy_version: 1,
    groups: 4,
    pass_at: { 1: expect.any(Number) },
  });
  expect(await db.select({ owner: replicas.runId }).from(replicas)).toEqual([{ owner: null }]);
});

test.each([
  ['an unknown key', { itterations: 1 }, 'itterations: unknown setting'],
  ['a negative count', { group_size: -1 }, 'group_size: '],
  ['a task that is not there', { tasks: ['/nowhere'] }, '/nowhere'],
  ['an agent that is not there', { agents: ['nobody'] }, 'nobody'],
  ['a model that is not there', { model: 'SmolLM2-135M-Instrukt' }, 'Did you mean SmolLM2-135M-Instruct?'],
])('a run file with %s is refused, and the message says what is wrong', async (name, changes, expected) => {
  const file = await runFile(`bad-${name.replaceAll(' ', '-')}.json`, changes);
  const { code, stderr } = await failureOf(
    deployment.trialgate('train', file, '--run', `bad-${name.replaceAll(' ', '-')}`),
  );
  expect(stderr).toContain(expected);
  expect(stderr).not.toContain('    at ');
  expect(code).toBe(2);
});

test('a second run of one name is refused, and so are `resume` and `show` of an unknown run', async () => {
  const taken = await failureOf(deployment.trialgate('train', await runFile('taken.json'), '--run', 'redo'));
  expect(taken).toMatchObject({ code: 2 });
  expect(taken.stderr).toContain('run redo exists');
  expect(taken.stderr).not.toContain('trial try-');
  expect(await failureOf(deployment.trialgate('resume', 'nobody'))).toMatchObject({ code: 2 });
  expect(await failureOf(deployment.trialgate('show', 'nobody'))).toMatchObject({ code: 2 });
});

async function openSandboxes(run: string): Promise<string[]> {
  for (let i = 0; i < 50; i++) {
    const left = (await readdir(join(deployment.home, 'sandboxes'))).filter((name) => name.startsWith(run));
    if (left.length === 0) return left;
    await sleep(200);
  }
  return readdir(join(deployment.home, 'sandboxes'));
}
