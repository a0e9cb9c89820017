import type { Client } from '@temporalio/client';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { and, desc, eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import { ownedNames, readOwner } from '../../activities/sandbox/owner.ts';
import { openDatabase, type Database } from '../../store/database.ts';
import { attempts, iterations, runs, trials } from '../../store/schema.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import type { ComponentProcess } from '../support/harness/component-process.ts';
import { startProcessPairs, type ProcessPairs } from '../support/harness/process-pairs.ts';
import { withDeployment } from '../../cli/run/connect.ts';
import { startRun } from '../../cli/run/start-run.ts';

const RUN = 'pairs';
const ITERATIONS = 6;
const SANDBOXES = 2;
let pairs: ProcessPairs;
let db: Database;

beforeAll(async () => {
  pairs = await startProcessPairs({ TRIALGATE_MAX_SANDBOXES: String(SANDBOXES) });
  db = openDatabase(pairs.plan.databaseUrl, { maxConnections: 2 });
});
afterAll(async () => {
  await db?.$client.end();
  await pairs?.remove();
});

async function until(condition: () => Promise<boolean>, what: string): Promise<void> {
  for (let i = 0; i < 12_000; i++) {
    if (await condition()) return;
    await sleep(50);
  }
  throw new Error(`never so: ${what}; ${JSON.stringify(await db.select().from(runs))}`);
}

async function reached(client: Client, iteration: number): Promise<void> {
  const status = () =>
    client.workflow
      .getHandle(RUN)
      .query<RunStatusReport>('status')
      .catch(() => null);
  await until(async () => {
    const now = await status();
    return now !== null && now.phase === 'rollout' && now.iteration >= iteration;
  }, `iteration ${iteration} samples`);
}

/** Returns the number of sandboxes that a worker has on disk. */
async function sandboxesOf({ pid }: ComponentProcess): Promise<number> {
  const { home } = pairs.config;
  const owners = await Promise.all((await ownedNames(home)).map((name) => readOwner(home, name)));
  return owners.filter((owner) => owner?.pid === pid).length;
}

async function completedBy(gatewayUrl: string): Promise<number> {
  const metrics = await (await fetch(`${gatewayUrl}/metrics`)).text();
  return Number(/^trialgate_calls_total\{status="completed"\} (\d+)/m.exec(metrics)?.[1]);
}

/** Waits for a worker that computes a step and returns it. A step is short; if one is missed, the next iteration has another. */
async function whoTrains(client: Client): Promise<ComponentProcess> {
  let pid = '';
  await until(async () => {
    const [{ iteration } = { iteration: 0 }] = await db
      .select()
      .from(iterations)
      .orderBy(desc(iterations.iteration))
      .limit(1);
    const step = await client.workflow
      .getHandle(`${RUN}/${iteration}.1`)
      .describe()
      .catch(() => null);
    pid =
      step?.raw.pendingActivities
        ?.find((each) => each.activityType?.name === 'trainStep')
        ?.lastWorkerIdentity?.split('@')[0] ?? '';
    return pid !== '';
  }, 'a gpu worker trains');
  const found = pairs.gpu.find((each) => String(each.pid) === pid);
  if (!found) throw new Error(`${pid} trains, which is none of ours`);
  return found;
}

/** Returns the pids of the processes that worked on the run's workflows, and by activity. */
async function whoWorked(client: Client): Promise<{ workflows: Set<number>; activities: Map<string, Set<number>> }> {
  const workflows = new Set<number>();
  const activities = new Map<string, Set<number>>();
  const pidOf = (identity: string | null | undefined) => Number(identity?.split('@')[0]);
  for await (const { workflowId, runId } of client.workflow.list({ query: `WorkflowId STARTS_WITH "${RUN}"` })) {
    const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    const names = new Map(
      events?.map((event) => [String(event.eventId), event.activityTaskScheduledEventAttributes?.activityType?.name]),
    );
    for (const event of events ?? []) {
      if (event.workflowTaskCompletedEventAttributes)
        workflows.add(pidOf(event.workflowTaskCompletedEventAttributes.identity));
      const started = event.activityTaskStartedEventAttributes;
      const name = started ? names.get(String(started.scheduledEventId)) : undefined;
      if (name) activities.set(name, (activities.get(name) ?? new Set()).add(pidOf(started?.identity)));
    }
  }
  return { workflows, activities };
}

const pids = (pair: readonly ComponentProcess[]) => pair.map((each) => each.pid);

test('two engines, gateways and workers of each kind share a run’s work, which goes on when a gateway and a workflow worker are killed', async () => {
  const config = parseRunConfig({
    model: pairs.model,
    tasks: [join(REPOSITORY, 'tasks/train')],
    agents: ['oneshot'],
    iterations: ITERATIONS,
    groups_per_iteration: 2,
    group_size: 4,
    max_prompt_length: 3000,
    max_attempts: 10,
    evaluation: { before: false, after: false },
  });
  await withDeployment(pairs.config, async ({ client }) => {
    await startRun(client, RUN, config);

    await reached(client, 0);
    await until(
      async () => (await Promise.all(pairs.gatewayUrls.map(completedBy))).every((count) => count > 0),
      'both gateways answer',
    );
    pairs.gateway[0].kill();

    await until(async () => (await sandboxesOf(pairs.activities[0])) > 0, 'trials run');
    pairs.workflows[0].kill();

    await reached(client, 1);
  });
});

test('the run goes on when an activity worker is killed with all its sandboxes full', async () => {
  await withDeployment(pairs.config, async ({ client }) => {
    await until(async () => (await sandboxesOf(pairs.activities[0])) === SANDBOXES, 'a worker has all its sandboxes');
    pairs.activities[0].kill();

    await reached(client, 2);
  });
});

test('the run completes when an engine and the worker that trains are killed too', async () => {
  await withDeployment(pairs.config, async ({ client }) => {
    const [before = 0] = pairs.sampled();
    await until(async () => (pairs.sampled()[0] ?? 0) > before, 'the engine is asked');
    pairs.engine[0].kill();
    await sleep(1000);
    await pairs.engine[0].start();

    (await whoTrains(client)).kill();
    await until(
      async () => (await db.select().from(runs).where(eq(runs.id, RUN)))[0]?.status !== 'running',
      'the run ends',
    );
  });
  expect(await db.select({ status: runs.status, reason: runs.reason }).from(runs)).toEqual([
    { status: 'completed', reason: null },
  ]);
});

test('each process had its part in the run, and no finished work was repeated', async () => {
  await withDeployment(pairs.config, async ({ client }) => {
    const { workflows, activities } = await whoWorked(client);
    expect([...workflows]).toEqual(expect.arrayContaining(pids(pairs.workflows)));
    expect([...(activities.get('openTrial') ?? [])]).toEqual(expect.arrayContaining(pids(pairs.activities)));
    const ofGpu = ['loadBase', 'trainStep', 'publishPolicy'].flatMap((name) => [...(activities.get(name) ?? [])]);
    expect(ofGpu).toEqual(expect.arrayContaining(pids(pairs.gpu)));
  });
  expect(Math.min(...pairs.sampled())).toBeGreaterThan(0);
  const scored = await db
    .select({ host: attempts.host })
    .from(attempts)
    .innerJoin(trials, eq(trials.id, attempts.trialId))
    .where(and(eq(trials.runId, RUN), eq(attempts.outcome, 'scored')));
  expect(scored).toHaveLength(ITERATIONS * 8);
  for (const { pid } of pairs.activities) expect(scored.some(({ host }) => host?.includes(`-${pid}-`))).toBe(true);
  expect(await sandboxesOf(pairs.activities[1])).toBe(0);
  expect(await auditRun(db, RUN, ITERATIONS)).toEqual([]);
});
