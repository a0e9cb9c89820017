import { randomUUID } from 'node:crypto';
import { Context } from '@temporalio/activity';
import { asc, eq } from 'drizzle-orm';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startRun } from '../../cli/run/start-run.ts';
import { slowEngineWarnings } from '../../cli/show/slow-engines.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { endLongCalls, noteLongCalls } from '../../store/queries/long-calls.ts';
import { readEngineSpeeds } from '../../store/queries/read-engine-speeds.ts';
import { recordCalls } from '../../store/queries/record-calls.ts';
import { attempts, trials } from '../../store/schema.ts';
import { FakeWorld } from '../support/fakes/fake-activities.ts';
import { recordsOver } from '../support/harness/records-over.ts';
import { taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { until } from '../support/harness/until.ts';
import { useDatabase } from '../support/harness/use-database.ts';
import { useTemporal } from '../support/harness/use-temporal.ts';
import { withWorkers } from '../support/harness/workflow-worker.ts';
import { callRecord } from '../support/scenarios/call-record.ts';

const environment = useTemporal();
const store = useDatabase();
const ENGINE = 'http://engine';
let serial = 0;

type Agent = { runId: string; trialId: string; attempt: number };

/** Runs one group of two trials, whose agents do this. */
async function run(
  deadlines: { trial: number; trial_at_most?: number },
  agent: (at: Agent) => Promise<void>,
  maxAttempts = 1,
): Promise<string> {
  await using folder = await temporaryHome();
  const runId = `slow${++serial}`;
  const world = new FakeWorld();
  world.runAgent = async ({ trialId, attempt }) => {
    const beat = setInterval(() => Context.current().heartbeat(), 200);
    await Promise.race([agent({ runId, trialId, attempt }), Context.current().cancelled]).finally(() =>
      clearInterval(beat),
    );
    return { outcome: null, seconds: { agent: 1 } };
  };
  const records = recordsOver(world, { db: store.db, temporal: environment.client, home: folder.home });
  const config = runConfig.parse({
    model: 'm',
    tasks: [(await taskWith(folder.home, 'true')).folder],
    iterations: 1,
    groups_per_iteration: 1,
    group_size: 2,
    max_attempts: maxAttempts,
    filter_groups: { enable: false },
    deadlines,
  });
  const queues = {
    trialgate: records,
    sandboxes: { openTrial: records.openTrial },
    host: world.host(),
    gpu: world.gpu(),
  };
  await withWorkers(environment, queues, async () => {
    const handle = await startRun(environment.client, runId, config);
    await until(async () => (await endsOf(runId)).length === 2).finally(() => handle.terminate().catch(() => {}));
  });
  return runId;
}

/** Returns the ends of the trials' last attempts, once all have ended. */
async function endsOf(runId: string) {
  const rows = await store.db
    .select({
      outcome: attempts.outcome,
      reason: attempts.reason,
      evidence: attempts.evidence,
      seconds: attempts.seconds,
    })
    .from(trials)
    .innerJoin(attempts, eq(attempts.trialId, trials.id))
    .where(eq(trials.runId, runId))
    .orderBy(asc(trials.trialIndex), asc(attempts.attempt));
  return rows.filter(({ outcome }) => outcome !== null);
}

/** Makes a call whose first token comes after so many seconds, as a gateway notes and records it. */
async function call({ runId, trialId, attempt }: Agent, seconds: number, constrained = false): Promise<void> {
  const callId = randomUUID();
  const startedAt = new Date();
  const at = { callId, trialId, attempt, runId, engine: ENGINE, stream: true, constrained, startedAt };
  const base = { ...at, firstTokenAt: null, tokens: 0 };
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await delay(200))
    await noteLongCalls(store.db, [base]);
  const now = new Date();
  await recordCalls(store.db, [
    callRecord({
      id: callId,
      trialId,
      attempt,
      engine: ENGINE,
      stream: true,
      startedAt,
      firstTokenAt: now,
      endedAt: now,
    }),
  ]);
  await endLongCalls(store.db, [callId]);
}

test('an agent’s waits for the engine do not count to its time, and its record says how long it waited', async () => {
  const runId = await run({ trial: 4, trial_at_most: 60 }, (at) => call(at, 8));
  const ends = await endsOf(runId);
  expect(ends.map(({ outcome }) => outcome)).toEqual(['scored', 'scored']);
  for (const { seconds } of ends) expect(seconds['engine_wait']).toBeGreaterThan(4);
});

test('an agent that uses up its own time is timed_out, and its work is verified', async () => {
  const runId = await run({ trial: 1, trial_at_most: 60 }, () => delay(60_000));
  expect(await endsOf(runId)).toMatchObject([
    { outcome: 'timed_out', reason: 'the agent used up its time' },
    { outcome: 'timed_out' },
  ]);
  expect((await store.db.select().from(trials).where(eq(trials.runId, runId))).map(({ rewards }) => rewards)).toEqual([
    { reward: 1 },
    { reward: 1 },
  ]);
});

test('a trial that reaches its limit while its own time is left because it waits for a stuck engine is no work of its agent: it gets no reward, and the run’s status says what is slow', async () => {
  let warnings: string[] = [];
  const runId = await run({ trial: 4, trial_at_most: 8 }, async (at) => {
    await Promise.all([
      call(at, 60),
      delay(2000).then(async () => (warnings = slowEngineWarnings(await readEngineSpeeds(store.db, at.runId)))),
    ]);
  });
  expect(await endsOf(runId)).toMatchObject([
    { outcome: 'infra_error', evidence: 'engine', reason: expect.stringContaining('while it waited for the engine') },
    { outcome: 'infra_error', evidence: 'engine' },
  ]);
  const rewards = await store.db.select({ rewards: trials.rewards }).from(trials).where(eq(trials.runId, runId));
  expect(rewards).toEqual([{ rewards: null }, { rewards: null }]);
  // A wait of two seconds is not worth a warning yet.
  expect(warnings).toEqual([]);
});

test('an agent that keeps a call of its own waiting, by a grammar, gains no time', async () => {
  const runId = await run({ trial: 1, trial_at_most: 30 }, (at) => call(at, 30, true));
  expect((await endsOf(runId)).map(({ outcome }) => outcome)).toEqual(['timed_out', 'timed_out']);
});
