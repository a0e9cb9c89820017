import { eq } from 'drizzle-orm';
import { afterEach, expect, test } from 'vitest';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { sealAttempt } from '../../store/queries/seal-attempt.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { groups, iterations, longCalls, poolWaits, publications, replicas, runs, trials } from '../../store/schema.ts';
import { ASK, eventually, IMPATIENT, useGateway } from '../../tests/support/harness/gateways.ts';
import { callRecord } from '../../tests/support/scenarios/call-record.ts';
import { vllmMetrics } from '../../tests/support/scenarios/vllm-metrics.ts';
import { deploymentState, type DeploymentReply } from './openapi/deployment-schemas.ts';

const gateway = useGateway({ settings: IMPATIENT });
afterEach(async () => {
  await gateway.db.delete(replicas);
  await gateway.db.delete(runs);
});

const read = async (): Promise<DeploymentReply> => (await gateway.admin('GET', '/deployment')).json();
const engineAt = async (url: string) => (await read()).engines.find((engine) => engine.url === url);

type OpenGroup = Partial<typeof groups.$inferInsert> & { ordinal: number };
const addGroup = (runId: string, group: OpenGroup) =>
  gateway.db.insert(groups).values({
    id: `${runId}/${group.iteration ?? 0}.1/${group.ordinal}`,
    runId,
    kind: 'train',
    iteration: 0,
    take: 1,
    task: '/t',
    agent: 'a',
    size: 4,
    policyVersion: 0,
    claim: null,
    ...group,
  });
const addRun = async (id: string, maxStaleness = 0) => {
  await gateway.db.insert(runs).values({ id, config: { max_staleness: maxStaleness } });
  await gateway.db.insert(iterations).values({ runId: id, iteration: 0, take: 1, policyVersion: 0 });
};

test('an engine shows the version that it confirmed, and whether its next one is published or others serve it already', async () => {
  const { url } = gateway.engine;
  const other = 'http://other:1';
  await addRun('run');
  // Whichever clock is ahead, and whenever the engine joined, times do not decide.
  const confirmedAt = new Date(Date.now() - 60_000);
  const leave = { runId: 'run', weightVersion: 'run@2', inRotation: false };
  await gateway.db.insert(replicas).values({ url: other, foundBy: 'hand', ...leave });
  await gateway.db.update(replicas).set(leave).where(eq(replicas.url, url));
  const confirmation = { runId: 'run', checksum: 'c', canaryDifference: 0 };
  await gateway.db.insert(publications).values([
    { ...confirmation, version: 1, replica: url, weightVersion: 'run@1', confirmedAt },
    {
      ...confirmation,
      version: 0,
      replica: url,
      weightVersion: 'run@0',
      confirmedAt: new Date(confirmedAt.getTime() - 1),
    },
  ]);
  expect(await engineAt(url)).toMatchObject({ confirmed: { version: 1 }, awaits: 'publication', in_rotation: false });
  await gateway.db
    .insert(publications)
    .values({ ...confirmation, version: 2, replica: other, weightVersion: 'run@2', confirmedAt });
  await gateway.db.update(replicas).set({ inRotation: true }).where(eq(replicas.url, other));
  expect(await engineAt(url)).toMatchObject({ confirmed: { version: 1 }, awaits: 'repair' });
  expect(await engineAt(other)).toMatchObject({ confirmed: { version: 2 }, awaits: null });
  await gateway.db.update(replicas).set({ drainedByHand: true }).where(eq(replicas.url, url));
  expect(await engineAt(url)).toMatchObject({ state: 'draining', awaits: null, awaits_since: null });
});

test('an engine shows what it told of its load, the calls of this process, and why a call did not take it', async () => {
  const { url } = gateway.engine;
  expect(await engineAt(url)).toMatchObject({ load: null, trouble: null, calls_in_flight: 0, trials: 0 });
  gateway.engine.metrics = vllmMetrics({ running: 3, waiting: 2, kvUse: 0.25, blocks: 100 });
  const held = Promise.withResolvers<void>();
  gateway.engine.beforeEnd = () => held.promise;
  const underWay = (await gateway.trial()).chat(ASK);
  await eventually(() => gateway.engine.seen.length === 1);
  await eventually(async () => (await engineAt(url))?.load !== null);
  expect(await engineAt(url)).toMatchObject({
    calls_in_flight: 1,
    load: { running: 3, waiting: 2, kv_use: 0.25, kv_tokens: 1_600 },
  });
  expect((await read()).calls).toEqual({ in_flight: 1, wait_for_budget: 0, wait_for_room: 0 });
  held.resolve();
  expect((await underWay).status).toBe(200);
  await gateway.engine.stop();
  expect((await (await gateway.trial()).chat(ASK)).ok).toBe(false);
  expect((await engineAt(url))?.trouble).toContain('cannot be reached');
});

test('trials under way count by what they do, by the engine of their last call, and those of superseded takes not at all', async () => {
  const { url } = gateway.engine;
  await addRun('busy');
  await addGroup('busy', { ordinal: 0 });
  await addGroup('busy', { ordinal: 1, endedAt: new Date() });
  await addGroup('busy', { ordinal: 2, task: '' });
  await addGroup('busy', { ordinal: 3, take: 2 });
  const open = (trialId: string, ordinal: number) =>
    openAttempt(gateway.db, {
      trialId,
      attempt: 1,
      runId: 'busy',
      groupId: `busy/0.1/${ordinal}`,
      trialIndex: 0,
      host: trialId === 'late' ? 'host-b' : 'host-a',
    });
  for (const id of ['works', 'verifies', 'lost']) await open(id, 0);
  await open('late', 1);
  await open('gone', 3);
  for (const engine of ['http://old:1', url])
    await recordCalls(gateway.db, [callRecord({ trialId: 'works', engine }), callRecord({ trialId: 'gone', engine })]);
  await gateway.db.update(trials).set({ status: 'completed' }).where(eq(trials.id, 'verifies'));
  await sealAttempt(gateway.db, { trialId: 'lost', outcome: 'infra_error', evidence: 'host', host: 'host-a' });
  await gateway.db.insert(longCalls).values({
    callId: crypto.randomUUID(),
    trialId: 'works',
    attempt: 1,
    engine: url,
    stream: false,
    constrained: false,
    startedAt: new Date(Date.now() - 7_000),
  });
  const reply = await read();
  expect(deploymentState.parse(reply)).toEqual(reply);
  expect(reply.runs).toMatchObject([
    {
      run_id: 'busy',
      open_groups: 1,
      unclaimed_groups: 1,
      unopened_trials: 1,
      trials_under_way: 3,
      verifying: 1,
      between_attempts: 1,
      stragglers: 1,
      oldest: { trial_id: 'works' },
      waits_for_engines_since: null,
    },
  ]);
  const opened = { run_id: 'busy', attempt: 1, opened_at: expect.any(Number) };
  expect(reply.hosts).toEqual([
    {
      host: 'host-a',
      attempts: 1,
      lost: 1,
      last_at: expect.any(Number),
      under_way: 2,
      sandboxes: [
        { ...opened, trial_id: 'works', verifying: false },
        { ...opened, trial_id: 'verifies', verifying: true },
      ],
    },
    {
      host: 'host-b',
      attempts: 0,
      lost: 0,
      last_at: null,
      under_way: 1,
      sandboxes: [{ ...opened, trial_id: 'late', verifying: false }],
    },
  ]);
  expect(reply.engines).toMatchObject([{ url, trials: 1, long_calls: 1, longest_call_at: expect.any(Number) }]);
  await gateway.db.insert(poolWaits).values({ runId: 'busy', pool: 'deployment' });
  expect((await read()).runs).toMatchObject([{ waits_for_engines_since: expect.any(Number) }]);
  await gateway.db.update(runs).set({ status: 'completed' }).where(eq(runs.id, 'busy'));
  expect(await read()).toMatchObject({ runs: [], hosts: [] });
});

test('the state of the deployment needs the admin key', async () => {
  expect((await fetch(`${gateway.gateway.url}/deployment`)).status).toBe(401);
});
