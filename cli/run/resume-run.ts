import { isGrpcDeadlineError, type WorkflowHandle } from '@temporalio/client';
import { and, desc, eq, gte, isNotNull, isNull } from 'drizzle-orm';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RelayRoute } from '../../activities/pool/get-from-engine.ts';
import { readRun } from '../../activities/run/read-run.ts';
import type { Database } from '../../store/database.ts';
import { reopenFailed } from '../../store/queries/reopen-failed.ts';
import { iterations, runs } from '../../store/schema.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { NO_RELAY, requireSameModel } from './check-engines.ts';
import type { DeploymentClients } from './connect.ts';
import { markPaused, markRunning } from './mark-running.ts';
import { startRescoring } from './rescore-run.ts';
import { startRun } from './start-run.ts';
import { updateRun } from './update-run.ts';

const UNNOTED = '. That could not be noted in the record, so the page still shows the pause';

/** What a person reads, and whether there is something left to watch. */
export type Resumed = { answer: string; goesOn: boolean };

/**
 * Unblocks a run that waits for a person, or ends its pause. For a run that ended, starts a new execution in the open take. A run
 * that has completed stays as it is, except a rescoring, whose version is published then.
 * @param relay the way to engines behind relay workers
 * @param retryFailed lets the open take's failed trials run again, after their agent or verifier was repaired
 * @throws TrialgateError `bad_input` when an engine has another model than the run, or when trials of a run that is under way should run again
 */
export async function resumeRun(
  { client, db }: DeploymentClients,
  runId: string,
  { retryFailed = false, relay = NO_RELAY }: { retryFailed?: boolean; relay?: RelayRoute } = {},
): Promise<Resumed> {
  const config = await readRun(db, runId);
  const handle = client.workflow.getHandle(runId);
  const description = await handle.describe().catch(() => null);
  const isRunning = description?.status.name === 'RUNNING';
  const completed = isRunning ? null : await describeCompleted(db, runId, config);
  if (completed !== null) return { answer: completed, goesOn: false };
  // `engine use` may have switched the engine since the run was blocked. A rescoring samples nothing.
  if (!(await isRescoring(db, runId))) await requireSameModel(db, config, relay);
  if (retryFailed && isRunning) await requireBlocked(handle, runId);
  const again = retryFailed ? `; ${await reopenFailed(db, runId)} failed trials run again` : '';
  if (isRunning) {
    try {
      const answer = await updateRun(client, runId, 'resume');
      const isNoted = await markPaused(db, runId, null);
      await unblocked(handle);
      return { answer: `${answer}${again}${isNoted ? '' : UNNOTED}`, goesOn: true };
    } catch (error) {
      if (!(error instanceof TrialgateError && error.code === 'not_found')) throw error;
      // The run is ending or has just ended. It can start again once it has closed.
      await client.withDeadline(Date.now() + ENDING_MS, () => handle.result()).catch(throwDeadline);
      const ended = await describeCompleted(db, runId, config);
      if (ended !== null) return { answer: ended, goesOn: false };
    }
  }
  await markRunning(db, runId);
  if (await isRescoring(db, runId)) await startRescoring(client, runId, config);
  else await startRun(client, runId, config, { resume: true });
  return { answer: `run ${runId} goes on${again}`, goesOn: true };
}

/** Returns what to say of a run that has completed all its iterations; null for any other, such as one that `stop` ended. */
async function describeCompleted(
  db: Database,
  runId: string,
  { iterations: count }: RunConfig,
): Promise<string | null> {
  const last = and(eq(iterations.runId, runs.id), gte(iterations.iteration, count - 1), eq(iterations.status, 'done'));
  const [found] = await db
    .select({ version: iterations.trainedVersion })
    .from(runs)
    .innerJoin(iterations, last)
    .where(and(eq(runs.id, runId), eq(runs.status, 'completed'), isNull(runs.rescores)))
    .orderBy(desc(iterations.iteration))
    .limit(1);
  if (!found) return null;
  const further =
    found.version === null
      ? ''
      : `, "npx trialgate fork ${runId}@${found.version}" trains on from its newest policy as a new run`;
  return `run ${runId} has completed, and nothing is left to do. "npx trialgate show ${runId}" shows it${further}`;
}

async function requireBlocked(handle: WorkflowHandle, runId: string): Promise<void> {
  const report = await handle.query<RunStatusReport>('status');
  if (report.phase === 'blocked') return;
  throw new TrialgateError(
    'bad_input',
    `run ${runId} is under way, and its groups would not see that their trials run again: use --retry-failed when it is blocked or has ended ("npx trialgate cancel ${runId}")`,
  );
}

/** A run that fails again at once looks as if it had stayed blocked. */
const UNBLOCKED_MS = 10_000;

/** Waits until the run has left the phase `blocked`. Before that, the store has still the status that a watcher would take for the run's end. */
async function unblocked(handle: WorkflowHandle): Promise<void> {
  for (const end = Date.now() + UNBLOCKED_MS; Date.now() < end; await sleep(100)) {
    const report = await handle.query<RunStatusReport>('status').catch(() => null);
    if (report?.phase !== 'blocked') return;
  }
}

/** A run that ends waits up to a minute for its groups, and then for the store. */
const ENDING_MS = 300_000;

/** Throws only when the run has not ended in time. How it ended does not matter here. */
function throwDeadline(error: unknown): void {
  if (isGrpcDeadlineError(error))
    throw new TrialgateError(
      'missing_prerequisite',
      `the run has not ended after ${ENDING_MS / 1000} s: check that its workers run ("npx trialgate status"), then resume it again`,
      { cause: error },
    );
}

/** True when the run is a rescoring whose iteration is still open. */
async function isRescoring(db: Database, runId: string): Promise<boolean> {
  const open = and(eq(iterations.runId, runs.id), eq(iterations.status, 'open'));
  return (
    (
      await db
        .select({ id: runs.id })
        .from(runs)
        .innerJoin(iterations, open)
        .where(and(eq(runs.id, runId), isNotNull(runs.rescores)))
    ).length > 0
  );
}
