import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eq } from 'drizzle-orm';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runs } from '../../store/schema.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { auditRun } from '../support/oracles/audit-run.ts';
import { enginePaused } from '../support/harness/engine-pause.ts';
import { shallowDeployment, type ShallowDeployment } from '../support/harness/shallow-deployment.ts';
import { statusOf } from '../support/harness/watched-runs.ts';
import { unrecorded, Witness } from '../support/oracles/witness.ts';

/** The model has 4 layers: a kill has the same effect at any depth, and repeated work takes less time. */
let place: ShallowDeployment;
let witness: Witness;

beforeAll(async () => {
  place = await shallowDeployment();
  witness = new Witness(place.deployment);
  await startTraining();
});
afterAll(async () => {
  await witness?.stop();
  await place?.remove();
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
  const { deployment, model } = place;
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

const status = () => statusOf(place.deployment, RUN);

/** Waits until the run is in that phase of the iteration, or in a later iteration. */
async function reached(iteration: number, phase: string, signal: AbortSignal): Promise<void> {
  for (let i = 0; i < 9000; i++) {
    const report = await status();
    if (report?.phase === 'blocked') throw new Error(`blocked: ${report.reason}`);
    if (report && (report.iteration > iteration || (report.iteration === iteration && report.phase === phase))) return;
    await sleep(100, null, { signal });
  }
  throw new Error(`iteration ${iteration} never came to ${phase}`);
}

/** Waits until agents make calls, the step computes, or the engine is paused. */
async function inTheMiddle(iteration: number, phase: string, signal: AbortSignal): Promise<void> {
  if (phase === 'publish') {
    await reached(iteration, 'train', signal);
    return enginePaused(place.engineSocket);
  }
  await reached(iteration, phase, signal);
  await sleep(phase === 'train' ? 300 : 2000, null, { signal });
  let now = await status();
  while (now === null) now = await status();
  expect(now).toMatchObject({ iteration, phase });
}

async function ended(signal: AbortSignal): Promise<string> {
  for (let i = 0; i < 1200; i++) {
    const [run] = await place.db
      .select()
      .from(runs)
      .where(eq(runs.id, RUN))
      .catch(() => []);
    if (run && run.status !== 'running') return `${run.status} ${run.reason ?? ''}`.trim();
    await sleep(500, null, { signal });
  }
  return 'still running';
}

const PHASES = ['rollout', 'batch', 'train', 'publish', 'completed'];

/** Waits until the run is in a later phase than that one of the iteration. */
async function wentOn(iteration: number, phase: string, signal: AbortSignal): Promise<void> {
  for (let i = 0; i < 9000; i++) {
    const report = await status();
    if (report?.phase === 'blocked') throw new Error(`blocked: ${report.reason}`);
    if (report && (report.iteration > iteration || PHASES.indexOf(report.phase) > PHASES.indexOf(phase))) return;
    await sleep(100, null, { signal });
  }
  throw new Error(`iteration ${iteration} never went on from ${phase}`);
}

test.for(KILLS)(
  'in iteration %i, a run goes on after a SIGKILL of %s in the middle of its %s',
  async ([iteration, victim, phase], { signal }) => {
    const { deployment } = place;
    await inTheMiddle(iteration, phase, signal);
    if (victim !== 'everything') deployment.kill(victim);
    else {
      deployment.killEverything();
      await deployment.up();
    }
    await wentOn(iteration, phase, signal);
  },
);

test('a run whose processes were killed completes, and no finished work is lost or repeated', async ({ signal }) => {
  expect(await ended(signal)).toBe('completed');
  const seen = await witness.stop();
  expect(seen.length).toBeGreaterThan(10);
  expect(await unrecorded(place.db, seen)).toEqual([]);
  expect(await auditRun(place.db, RUN, ITERATIONS)).toEqual([]);
});
