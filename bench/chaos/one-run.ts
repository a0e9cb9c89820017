import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { and, eq } from 'drizzle-orm';
import { sandboxesFolder } from '../../activities/sandbox/sandboxes-folder.ts';
import { connectionsOf } from '../../cli/config/connections.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { withDeployment, type DeploymentClients } from '../../cli/run/connect.ts';
import { resumeRun } from '../../cli/run/resume-run.ts';
import { startRun } from '../../cli/run/start-run.ts';
import { updateRun } from '../../cli/run/update-run.ts';
import { Witness } from '../../tests/support/oracles/witness.ts';
import { parseRunConfig } from '../../core/run-config/parse-run-config.ts';
import type { Random } from '../../tests/support/scenarios/fuzz/random.ts';
import { openDatabase, type Database } from '../../store/database.ts';
import { iterations, runs } from '../../store/schema.ts';
import { auditChaos } from './audit.ts';
import type { ChaosDeployment } from './deployment.ts';
import { readEngineLog } from '../../tests/support/fakes/chaos-engine-log.ts';
import { namesOf, causeFaults, type Fault, type FaultTimes } from './faults.ts';
import { progressOf } from './progress.ts';
import { repeatedOf, type RepeatedWork } from './repeated.ts';
import { hasStragglers, SETTINGS, type Settings } from './settings.ts';

export type Outcome = {
  run: string;
  settings: Settings;
  /** `completed`, or the run's status when it was given up. */
  ended: string;
  seconds: number;
  /** `recovered` is the seconds from the fault's end until the run finished something, or null if it finished nothing more. */
  faults: (FaultTimes & { recovered: number | null })[];
  /** The reasons with which it was blocked before it was resumed. */
  resumed: string[];
  repeated: RepeatedWork | null;
  witnessed: number;
  /** The invariants that do not hold. */
  broken: string[];
};

/** `faults` has groups of simultaneous faults, in order. The run has at least `iterations` and goes on until all faults have happened. */
export type Plan = {
  run: string;
  iterations: number;
  settings: Settings;
  faults: Fault[][];
  random: Random;
  log: (line: string) => void;
};

const PAUSE_MS = 5_000;
/** More iterations than a run under faults can reach. */
const MOST_ITERATIONS = 1000;
/** A run that finishes nothing for this long after a fault is given up. */
const STUCK_MS = 300_000;
const POLL_MS = 250;
/** The time for a run's workflows to end after it, and for its stragglers to be cut. */
const [LEFT_MS, CUT_MS] = [20_000, 150_000];

/** Runs one training run under faults to its end, and checks the invariants. */
export async function oneRun(
  deployment: ChaosDeployment,
  { run, iterations: atLeast, settings, faults, random, log }: Plan,
  signal: AbortSignal,
): Promise<Outcome> {
  const db = openDatabase(connectionsOf(deployment.config).databaseUrl, { maxConnections: 4 });
  const witness = new Witness(deployment, { name: `witness-${run}`, everyMs: 500 });
  const resumed: string[] = [];
  const struck: FaultTimes[] = [];
  const broken: string[] = [];
  const began = Date.now();
  const standing = (): Promise<{ status: string; reason: string | null } | null> =>
    db
      .select()
      .from(runs)
      .where(eq(runs.id, run))
      .then(
        ([row]) => row ?? null,
        () => null,
      );
  const isOver = async (): Promise<boolean> =>
    ['completed', 'failed', 'cancelled'].includes((await standing())?.status ?? '');

  /** Waits until the run has finished something after `since`, or ended. Resumes it when it is blocked, as a person would. */
  const waitForProgress = async (since: number): Promise<void> => {
    for (const end = Date.now() + STUCK_MS; Date.now() < end; await sleep(POLL_MS, undefined, { signal })) {
      if (deployment.supervisor === null) {
        broken.push('the supervisor died by itself');
        await deployment.up(signal);
      }
      const now = await standing();
      if (now?.status === 'blocked') {
        log(`blocked: ${now.reason}`);
        resumed.push((now.reason ?? 'no reason').replaceAll(deployment.config.home, 'HOME'));
        await resume(deployment, run, signal);
      }
      const progress = await progressOf(db, run).catch(() => []);
      if ((progress.at(-1) ?? 0) > since || (await isOver())) return;
    }
    throw new Error(`stuck: ${JSON.stringify(await standing())}`);
  };

  try {
    await start(deployment, run, { ...SETTINGS[settings], iterations: MOST_ITERATIONS });
    await waitForProgress(0);
    for (const together of faults) {
      await sleep(random.below(PAUSE_MS), undefined, { signal });
      if (await isOver()) break;
      log(namesOf(together));
      const one = await causeFaults(deployment, together, random, signal);
      struck.push(one);
      await waitForProgress(one.ended);
    }
    if (!(await isOver())) await retryForAMinute(() => endAfter(deployment, run, atLeast), signal);
    while (!(await isOver())) await waitForProgress(Date.now());
  } catch (error) {
    signal.throwIfAborted();
    broken.push(describe(error));
  }
  const witnessed = await witness.stop();
  const now = await standing();
  const ended = now?.status === 'completed' ? 'completed' : `${now?.status ?? 'not known'}: ${now?.reason}`;
  const seconds = (Date.now() - began) / 1000;
  const restarted = struck.some(({ fault }) => /kill (engine|supervisor)/.test(fault));
  let repeated: RepeatedWork | null = null;
  try {
    await withDeployment(deployment.config, async (connected) => {
      broken.push(...(await leftRunning(connected, run, hasStragglers(settings) ? CUT_MS : LEFT_MS)));
      repeated = await repeatedOf(connected, run);
    });
    const engine = readEngineLog(deployment.engineLog).filter(({ at }) => at >= began);
    const made = await iterationsDone(db, run);
    broken.push(
      ...(await auditChaos({
        db,
        runId: run,
        iterations: Math.max(made, atLeast),
        settings,
        witnessed,
        engine,
        restarted,
      })),
    );
    broken.push(...(await leftSandboxes(deployment, run)));
  } catch (error) {
    signal.throwIfAborted();
    broken.push(`not audited: ${describe(error)}`);
  }
  const progress = await progressOf(db, run).catch(() => []);
  await db.$client.end();
  const faultsMet = struck.map((fault) => ({ ...fault, recovered: recoveredAfter(fault, progress) }));
  return { run, settings, ended, seconds, faults: faultsMet, resumed, repeated, witnessed: witnessed.length, broken };
}

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function recoveredAfter({ ended }: FaultTimes, progress: number[]): number | null {
  const next = progress.find((at) => at > ended);
  return next === undefined ? null : (next - ended) / 1000;
}

async function start(
  { config, model }: ChaosDeployment,
  run: string,
  settings: Record<string, unknown>,
): Promise<void> {
  const file = {
    model,
    tasks: [join(REPOSITORY, 'tasks/train')],
    agents: ['oneshot', 'repair'],
    ...settings,
    groups_per_iteration: 2,
    group_size: 4,
    max_prompt_length: 3000,
    max_attempts: 20,
    evaluation: { before: false, after: false },
  };
  await withDeployment(config, ({ client }) => startRun(client, run, parseRunConfig(file)));
}

/** Resumes the run, and retries until Temporal accepts it, as a person would. */
const resume = ({ config }: ChaosDeployment, run: string, signal: AbortSignal): Promise<void> =>
  retryForAMinute(() => withDeployment(config, async (connected) => void (await resumeRun(connected, run))), signal);

/** Ends the run after the iteration that is under way, but not before `atLeast` iterations. */
const endAfter = ({ config }: ChaosDeployment, run: string, atLeast: number): Promise<void> =>
  withDeployment(config, async ({ client, db }) => {
    const last = Math.max(atLeast, (await iterationsDone(db, run)) + 1);
    await updateRun(client, run, 'configure', { iterations: last });
  });

const iterationsDone = (db: Database, run: string): Promise<number> =>
  db.$count(iterations, and(eq(iterations.runId, run), eq(iterations.status, 'done')));

/** Retries for a minute, because the process that is asked may be down. */
async function retryForAMinute(ask: () => Promise<void>, signal: AbortSignal): Promise<void> {
  const bound = AbortSignal.timeout(60_000);
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (bound.aborted) throw error;
      await sleep(1000, undefined, { signal });
    }
  }
}

/** Returns the run's workflows that do not end in time. One may end after its run, when the heartbeats of a killed worker are missed. */
async function leftRunning({ client }: DeploymentClients, run: string, withinMs: number): Promise<string[]> {
  let left: string[] = [];
  for (const end = Date.now() + withinMs; Date.now() < end;) {
    left = [];
    for await (const { workflowId } of client.workflow.list({
      query: `WorkflowId STARTS_WITH "${run}" AND ExecutionStatus = "Running"`,
    })) {
      if (workflowId === run || workflowId.startsWith(`${run}/`)) left.push(workflowId);
    }
    if (left.length === 0) return [];
    await sleep(500);
  }
  return left.map((id) => `workflow ${id} goes on after its run`);
}

async function leftSandboxes({ config }: ChaosDeployment, run: string): Promise<string[]> {
  const folder = await sandboxesFolder(config.home);
  let left: string[] = [];
  for (let i = 0; i < 40; i++) {
    left = (await readdir(folder).catch(() => [])).filter((name) => name.startsWith(`${run}-`));
    if (left.length === 0) return [];
    await sleep(500);
  }
  return left.map((name) => `sandbox ${name} is left`);
}
