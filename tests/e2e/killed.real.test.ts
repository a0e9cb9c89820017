import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDatabase, type Database } from '../../store/database.ts';
import { calls, runs } from '../../store/schema.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { shallowModel } from '../support/harness/shallow-model.ts';
import { TestDeployment } from '../support/harness/deployment.ts';
import { enginePaused } from '../support/harness/engine-pause.ts';
import { Witness } from '../support/oracles/witness.ts';
import { socketFolder } from '../../cli/supervisor/plan.ts';
import { withDeployment } from '../../cli/run/connect.ts';

let folder: string;
/** The model has 4 layers: a kill has the same effect at any depth, and repeated work takes less time. */
let model: string;
let deployment: TestDeployment;
let db: Database;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-killed-'));
  await chmod(folder, 0o755);
  model = await shallowModel(join(folder, 'model'), 4);
  deployment = await TestDeployment.create({ TRIALGATE_MODEL: model });
  await deployment.up();
  db = openDatabase(connectionsOf(deployment.config).databaseUrl);
});
afterAll(async () => {
  await db?.$client.end();
  await deployment?.remove();
  await rm(folder, { recursive: true, force: true });
});

const RUN = 'killed';
/** Kills by iteration, victim and phase that need the real engine and weights. bench/chaos has the others. */
const KILLS = [
  [0, 'gateway', 'rollout'],
  [0, 'gpu-worker', 'train'],
  [1, 'vllm', 'rollout'],
  [1, 'vllm', 'publish'],
  [2, 'everything', 'rollout'],
] as const;
const ITERATIONS = 3;

async function startTraining(): Promise<void> {
  const file = join(deployment.home, 'killed.json');
  const config = {
    model,
    tasks: [join(REPOSITORY, 'tasks/train')],
    agents: ['oneshot', 'repair'],
    iterations: ITERATIONS,
    groups_per_iteration: 2,
    group_size: 4,
    max_response_length: 64,
    max_attempts: 10,
    // Several epochs make the step long enough to be killed.
    ppo_epochs: 4,
    evaluation: { before: false, after: false },
  };
  await writeFile(file, JSON.stringify(config));
  await deployment.trialgate('train', file, '--run', RUN, '--detach');
}

const status = () =>
  withDeployment(deployment.config, ({ client }) =>
    client.workflow.getHandle(RUN).query<RunStatusReport>('status'),
  ).catch(() => null);

async function reached(iteration: number, phase: string): Promise<void> {
  for (let i = 0; i < 9000; i++) {
    const report = await status();
    if (report?.phase === 'blocked') throw new Error(`blocked: ${report.reason}`);
    if (report && (report.iteration > iteration || (report.iteration === iteration && report.phase === phase))) return;
    await sleep(100);
  }
  throw new Error(`iteration ${iteration} never came to ${phase}`);
}

/** Waits until agents make calls, the step computes, or the engine is paused. */
async function inTheMiddle(iteration: number, phase: string): Promise<void> {
  if (phase === 'publish') {
    await reached(iteration, 'train');
    return enginePaused(join(socketFolder(deployment.home), 'engine.sock'));
  }
  await reached(iteration, phase);
  await sleep(phase === 'train' ? 300 : 2000);
  let now = await status();
  while (now === null) now = await status();
  expect(now).toMatchObject({ iteration, phase });
}

async function ended(): Promise<string> {
  for (let i = 0; i < 1200; i++) {
    const [run] = await db
      .select()
      .from(runs)
      .where(eq(runs.id, RUN))
      .catch(() => []);
    if (run && run.status !== 'running') return `${run.status} ${run.reason ?? ''}`.trim();
    await sleep(500);
  }
  return 'still running';
}

test('after a SIGKILL of any process, or of all, a run goes on: no finished work is lost or repeated', async () => {
  const witness = new Witness(deployment);
  await startTraining();
  for (const [iteration, victim, phase] of KILLS) {
    await inTheMiddle(iteration, phase);
    console.log(`iteration ${iteration}: killing ${victim} in ${phase}`);
    if (victim !== 'everything') deployment.kill(victim);
    else {
      deployment.killEverything();
      await deployment.up();
    }
  }
  expect(await ended()).toBe('completed');
  const seen = await witness.stop();
  const recorded = await db.select({ response: calls.response }).from(calls).where(eq(calls.status, 'completed'));
  const ids = new Set(recorded.map(({ response }) => String(JSON.parse(response?.toString() ?? '{}').id)));
  expect(seen.length).toBeGreaterThan(10);
  expect(seen.filter((id) => !ids.has(id))).toEqual([]);
  expect(await auditRun(db, RUN, ITERATIONS)).toEqual([]);
});
