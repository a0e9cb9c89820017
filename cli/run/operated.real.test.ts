import { execFile } from 'node:child_process';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import proto from '@temporalio/proto';
import { and, eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase, type Database } from '../../store/database.ts';
import { calls, policyVersions, replicas, trials } from '../../store/schema.ts';
import { connectionsOf } from '../config/connections.ts';
import { INSTALLS, REPOSITORY } from '../folders.ts';
import { readRunRecord, type RunRecord } from '../show/run-record.ts';
import type { UnderWay } from '../show/under-way.ts';
import { auditRun } from '../testing/audit-run.ts';
import { TestDeployment } from '../testing/deployment.ts';
import { withDeployment } from './connect.ts';

const execute = promisify(execFile);
let deployment: TestDeployment;
let db: Database;

beforeAll(async () => {
  deployment = await TestDeployment.create();
  await deployment.up();
  db = openDatabase(connectionsOf(deployment.config).databaseUrl);
});
afterAll(async () => {
  await db?.$client.end();
  await deployment?.remove();
});

const RUN_FILE = {
  model: 'SmolLM2-135M-Instruct',
  tasks: [join(REPOSITORY, 'tasks/train')],
  agents: ['oneshot'],
  iterations: 2,
  groups_per_iteration: 2,
  group_size: 3,
  max_response_length: 48,
  evaluation: { tasks: [join(REPOSITORY, 'tasks/eval')], samples: 2, before: false },
};

async function runFile(name: string, changes: object = {}): Promise<string> {
  const file = join(deployment.home, name);
  await writeFile(file, JSON.stringify({ ...RUN_FILE, ...changes }));
  return file;
}

async function temporal(...args: string[]): Promise<string> {
  const { temporalAddress } = connectionsOf(deployment.config);
  const { stdout } = await execute(INSTALLS.temporal, ['workflow', ...args, '--address', temporalAddress], { env: deployment.env });
  return stdout;
}

async function until(run: string, done: (record: RunRecord) => boolean): Promise<RunRecord> {
  for (let i = 0; i < 4000; i++) {
    const record = await readRunRecord(db, run).catch(() => null);
    if (record && done(record)) return record;
    await sleep(300);
  }
  throw new Error(`run ${run}: ${JSON.stringify(await readRunRecord(db, run).catch(String)).slice(0, 2000)}`);
}

const failureOf = (command: Promise<unknown>): Promise<{ code: number; stderr: string }> =>
  command.then(
    () => ({ code: 0, stderr: '' }),
    (error: { code: number; stderr: string }) => ({ code: error.code, stderr: error.stderr }),
  );

test('a run that Temporal\'s own CLI starts, queries and resets is not the same as one of ours', async () => {
  const file = await runFile('by-temporal.json');
  await temporal('start', '--type', 'trainRun', '--task-queue', 'trialgate', '--workflow-id', 'by-temporal', '--input-file', file);
  expect(await temporal('query', '--workflow-id', 'by-temporal', '--type', 'status')).toContain('"by-temporal"');
  const first = await until('by-temporal', (record) => record.status === 'completed');
  expect(first.iterations.map((row) => [row.iteration, row.take, row.status, row.policy_version, row.trained_version])).toEqual([
    [0, 1, 'done', 0, 1],
    [1, 1, 'done', 1, 2],
  ]);
  expect(first.evaluations.map((row) => row.policy_version)).toEqual([2]);
  expect(await auditRun(db, 'by-temporal', 2)).toEqual([]);

  await temporal('reset', '--workflow-id', 'by-temporal', '--type', 'LastContinuedAsNew', '--reapply-exclude', 'All', '--reason', 'redo');
  const again = await until('by-temporal', (record) => record.status === 'completed' && record.iterations.length === 3);
  expect(again.iterations.map((row) => [row.iteration, row.take, row.status, row.policy_version, row.trained_version])).toEqual([
    [0, 1, 'done', 0, 1],
    [1, 1, 'superseded', 1, 2],
    [1, 2, 'done', 1, 3],
  ]);
  expect(again.iterations[1]?.batch?.sha256).not.toBe(again.iterations[2]?.batch?.sha256);
});

test('`redo` does less than Temporal\'s reset, or a version number is used twice', async () => {
  await deployment.trialgate('train', await runFile('redo.json', { iterations: 1, evaluation: { after: false } }), '--run', 'redo');
  await deployment.trialgate('redo', 'redo');
  const record = await until('redo', (each) => each.status === 'completed' && each.iterations.length === 2);
  expect(record.iterations.map((row) => [row.take, row.status, row.policy_version, row.trained_version])).toEqual([
    [1, 'superseded', 0, 1],
    [2, 'done', 0, 2],
  ]);
  const printed: RunRecord = JSON.parse(await deployment.trialgate('show', 'redo', '--json'));
  expect(printed.iterations[1]?.replicas[0]?.label).toBe('redo@2');
  expect(await deployment.trialgate('show', 'redo-0.2-0-0')).toContain('task ');
});

test('a cancelled run repeats its finished trials when it is resumed, or leaves agents behind', async () => {
  await deployment.trialgate('train', await runFile('cancelled.json', { max_response_length: 100 }), '--run', 'cancelled', '--detach');
  await until('cancelled', (record) => (record.iterations[0]?.trials.scored ?? 0) > 0);
  await temporal('cancel', '--workflow-id', 'cancelled');
  await until('cancelled', (record) => record.status === 'cancelled');
  expect(await openSandboxes('cancelled')).toEqual([]);
  await deployment.trialgate('resume', 'cancelled');
  const record = await until('cancelled', (each) => each.status === 'completed');
  expect(record.iterations.map((row) => [row.iteration, row.take, row.status])).toEqual([[0, 1, 'done'], [1, 1, 'done']]);
  const faults = await auditRun(db, 'cancelled', 2);
  expect(faults).toEqual([]);
});

test('a straggler that is cut at its group\'s quorum keeps its sandbox, or its request under way', async () => {
  const cut = { iterations: 1, group_size: 4, group_quorum: 1, stragglers: 'cancel', max_response_length: 300, evaluation: { after: false } };
  await deployment.trialgate('train', await runFile('quorum.json', cut), '--run', 'quorum');
  const rows = await db.select().from(trials).where(and(eq(trials.runId, 'quorum'), eq(trials.outcome, 'cancelled')));
  expect(rows.map(({ reason }) => reason)).toContain('enough trials of the group had ended');
  // The gateway lets the engine go when an agent's connection ends: `hang-up` tests count that at the engine.
  const cancelled = await db.select().from(calls).innerJoin(trials, eq(trials.id, calls.trialId)).where(and(eq(trials.runId, 'quorum'), eq(calls.status, 'cancelled')));
  expect(cancelled.length).toBeGreaterThan(0);
  for (const { calls: call, trials: trial } of cancelled) expect([call.reason, trial.outcome]).toEqual([expect.stringContaining('agent_disconnected'), 'cancelled']);
  expect(await openSandboxes('quorum')).toEqual([]);
});

test('a trial\'s record differs from what is trained on, or a call of a run went unrecorded', async () => {
  const rows = await db.select().from(calls).innerJoin(trials, eq(trials.id, calls.trialId));
  const completed = rows.filter((row) => row.calls.status === 'completed');
  expect(completed.length).toBeGreaterThan(0);
  for (const { calls: call } of completed) {
    expect(call.untrainable).toBeNull();
    expect(call.completionTokenIds?.length).toBe(call.logprobs?.length);
    expect(call.promptTokenIds?.length).toBeGreaterThan(0);
    expect(call.policyVersion).not.toBeNull();
  }
});

test('a history holds the secret, the admin key, PostgreSQL’s password or an attempt’s key', async () => {
  const { secret, adminKey, databaseUrl } = connectionsOf(deployment.config);
  const histories = await withDeployment(deployment.config, async ({ client }) => {
    let text = '';
    for await (const { workflowId, runId } of client.workflow.list()) {
      const { History } = proto.temporal.api.history.v1;
      text += Buffer.from(History.encode(await client.workflow.getHandle(workflowId, runId).fetchHistory()).finish()).toString('latin1');
    }
    return text;
  });
  expect(histories).toContain('cancelled/1.1');
  const words = [secret, adminKey, new URL(databaseUrl).password].filter((word) => histories.includes(word));
  expect([...words, ...(histories.match(/tg-\d+-[\w-]+/g) ?? [])]).toEqual([]);
});

test('a person cannot change, cut or look into a run that is under way', async () => {
  // Trials of several turns: what a person does meanwhile is some commands long, and each takes seconds where the machine is busy.
  const file = await runFile('operated.json', { agents: ['repair'], iterations: 3, group_size: 4, max_response_length: 300, evaluation: { ...RUN_FILE.evaluation, after: false } });
  await deployment.trialgate('train', file, '--run', 'operated', '--detach');
  await until('operated', (record) => (record.iterations[0]?.trials.open ?? 0) > 0);
  const skipped = await firstOf([0, 1].flatMap((group) => [3, 2, 1, 0].map((member) => `operated-0.1-${group}-${member}`)), (trial) => deployment.trialgate('skip', 'operated', trial));
  const shown: RunRecord & { under_way: UnderWay } = JSON.parse(await deployment.trialgate('show', 'operated', '--json'));
  expect(shown.under_way).toMatchObject({ phase: 'rollout', waits_for: expect.stringContaining('trials for the batch') });
  for (const { trials: standing, until: deadline } of shown.under_way.groups) {
    expect(standing.waiting + standing.running + standing.ended).toBe(4);
    expect(Date.parse(deadline ?? '')).toBeGreaterThan(Date.now());
  }
  const refused = await failureOf(deployment.trialgate('configure', 'operated', 'iterations=1', 'optim.lr=fast'));
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('optim.lr') });
  expect(await deployment.trialgate('configure', 'operated', 'iterations=1', 'optim.lr=1e-4', 'evaluation.samples=1')).toContain('changed');
  const record = await until('operated', (each) => each.status === 'completed');
  expect(record.iterations).toMatchObject([{ iteration: 0, status: 'done', trained_version: 1, batch: { trials: 7 }, metrics: { 'actor/lr': 1e-4 } }]);
  expect(record.config).toMatchObject({ iterations: 1, optim: { lr: 1e-4 }, evaluation: { samples: 1 } });
  expect((await db.select().from(trials).where(eq(trials.id, skipped)))[0]).toMatchObject({ outcome: 'cancelled', reason: 'skipped by a person' });
  expect(await failureOf(deployment.trialgate('skip', 'operated', skipped))).toMatchObject({ code: 2, stderr: expect.stringContaining('run operated is not under way') });
});

test('a version of one run cannot begin another, or not with what the trainer had', async () => {
  await deployment.trialgate('fork', 'operated@1', '--run', 'forked', '--iterations', '1', 'groups_per_iteration=1', 'group_size=2', 'max_response_length=16');
  const record = await readRunRecord(db, 'forked');
  expect(record).toMatchObject({ status: 'completed', forked_from: 'operated@1', iterations: [{ policy_version: 0, trained_version: 1, groups: 1 }], config: { optim: { lr: 1e-4 } } });
  const shaOf = async (run: string, version: number) => (await db.select().from(policyVersions).where(and(eq(policyVersions.runId, run), eq(policyVersions.version, version))))[0]?.checkpointSha256;
  expect(await shaOf('forked', 0)).toBe(await shaOf('operated', 1));
  expect(await auditRun(db, 'forked', 1)).toEqual([]);
});

test('a finished batch cannot be trained on again, or what came of it not be evaluated', async () => {
  const before = (await db.select().from(calls)).length;
  await deployment.trialgate('rescore', 'operated', '--iteration', '0', '--reward-weights', 'reward=0.5', '--run', 'rescored');
  expect(await readRunRecord(db, 'rescored')).toMatchObject({ status: 'completed', rescores: 'operated/0.1', iterations: [{ trained_version: 1, batch: { trials: 7 } }], config: { reward_weights: { reward: 0.5 } } });
  expect((await db.select().from(calls)).length).toBe(before);
  const evaluation: RunRecord['evaluations'][number] = JSON.parse(await deployment.trialgate('evaluate', 'rescored@1', '--samples', '1', '--json'));
  expect(evaluation).toMatchObject({ id: 'eval@1.1', policy_version: 1, groups: 4, pass_at: { 1: expect.any(Number) } });
  expect(await db.select({ owner: replicas.runId }).from(replicas)).toEqual([{ owner: null }]);
});

test.each([
  ['an unknown key', { itterations: 1 }, 'itterations: unknown setting'],
  ['a negative count', { group_size: -1 }, 'group_size: '],
  ['a task that is not there', { tasks: ['/nowhere'] }, '/nowhere'],
  ['an agent that is not there', { agents: ['nobody'] }, 'nobody'],
])('a run file with %s starts a run, or hides what is wrong', async (name, changes, expected) => {
  const file = await runFile(`bad-${name.replaceAll(' ', '-')}.json`, changes);
  const { code, stderr } = await failureOf(deployment.trialgate('train', file, '--run', `bad-${name.replaceAll(' ', '-')}`));
  expect(stderr).toContain(expected);
  expect(stderr).not.toContain('    at ');
  expect(code).toBe(2);
});

test('a run whose name is taken starts over, or a name that nobody has resumes', async () => {
  const taken = await failureOf(deployment.trialgate('train', await runFile('taken.json'), '--run', 'redo'));
  expect(taken).toMatchObject({ code: 2 });
  expect(taken.stderr).toContain('run redo exists');
  expect(await failureOf(deployment.trialgate('resume', 'nobody'))).toMatchObject({ code: 2 });
  expect(await failureOf(deployment.trialgate('show', 'nobody'))).toMatchObject({ code: 2 });
});

/** The first of these with which it works: trials end while one is looked for. */
async function firstOf(names: string[], work: (name: string) => Promise<unknown>): Promise<string> {
  const failures: string[] = [];
  for (const name of names) {
    const { code, stderr } = await failureOf(work(name));
    if (code === 0) return name;
    failures.push(stderr);
  }
  throw new Error(failures.join('\n'));
}

async function openSandboxes(run: string): Promise<string[]> {
  for (let i = 0; i < 50; i++) {
    const left = (await readdir(join(deployment.home, 'sandboxes'))).filter((name) => name.startsWith(run));
    if (left.length === 0) return left;
    await sleep(200);
  }
  return readdir(join(deployment.home, 'sandboxes'));
}
