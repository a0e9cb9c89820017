import { rm, stat } from 'node:fs/promises';
import type { Client } from '@temporalio/client';
import { eq } from 'drizzle-orm';
import { TrialgateError } from '../../core/errors.ts';
import { unknownRun } from '../../activities/run/unknown-run.ts';
import { deleteRun } from '../../store/queries/delete-run.ts';
import { runs } from '../../store/schema.ts';
import type { DeploymentClients } from '../run/connect.ts';
import { removeSchedule } from '../run/schedule-evaluations.ts';

/**
 * Deletes a run: its trials, calls, checkpoints and batches, its schedule, and the histories of its workflows. Runs that were forked from it keep their own
 * files. Returns a sentence about the result.
 * @throws TrialgateError `bad_input` when the run or an evaluation of it is under way, `not_found` when there is none
 */
export async function removeRun({ client, db }: DeploymentClients, runId: string): Promise<string> {
  const executions = await executionsOf(client, runId);
  const [known] = await db.select({ status: runs.status, reason: runs.reason }).from(runs).where(eq(runs.id, runId));
  const running = executions.filter(({ isRunning }) => isRunning).map(({ workflowId }) => workflowId);
  if (running.length > 0) throw notEnded(runId, running, known);
  if (!known) throw await unknownRun(db, runId);
  await removeSchedule(client, runId).catch((error: unknown) => {
    if (!(error instanceof TrialgateError && error.code === 'not_found')) throw error;
  });
  // The run itself goes last, so that an interrupted deletion can be repeated.
  await removeHistories(client, executions);
  const files = await deleteRun(db, runId);
  if (!files) throw await unknownRun(db, runId);
  // If this process ends here, `gc` removes the files.
  const removed = await Promise.all([files.checkpoints, files.batches].map(removeAll));
  const [checkpoints = 0, batches = 0] = removed;
  return `run ${runId} is deleted, with ${checkpoints} checkpoint(s) and ${batches} batch file(s) of this machine`;
}

type Execution = { workflowId: string; runId: string; isRunning: boolean };

/** Returns all executions of a run's workflows: its own, and those of its groups, iterations, evaluations and publications. */
async function executionsOf(client: Client, runId: string): Promise<Execution[]> {
  const found = [];
  const query = `WorkflowId = "${runId}" OR WorkflowId STARTS_WITH "${runId}/"`;
  for await (const { workflowId, runId: execution, status } of client.workflow.list({ query }))
    found.push({ workflowId, runId: execution, isRunning: status.name === 'RUNNING' });
  return found;
}

/** Says which of a run's workflows has to end before the run is deleted: the run, otherwise its evaluation, otherwise any. */
function notEnded(
  runId: string,
  running: readonly string[],
  known: { status: string; reason: string | null } | undefined,
): TrialgateError {
  const evaluation = `${runId}/evaluate`;
  const first = [runId, evaluation].find((id) => running.includes(id)) ?? running[0] ?? runId;
  const [reason = ''] = known?.reason?.split('\n') ?? [];
  const state =
    first === runId
      ? known?.status === 'blocked'
        ? `is blocked and has not ended${reason && ` (${reason})`}`
        : 'is under way'
      : first === evaluation
        ? 'is being evaluated'
        : `is under way: its workflow ${first} has not ended`;
  return new TrialgateError(
    'bad_input',
    `run ${runId} ${state}. "npx trialgate cancel ${first}" ends it, then "npx trialgate rm ${runId}" deletes the run`,
  );
}

/** The deletions that are under way at the same time. A long run has thousands of groups. */
const AT_ONCE = 16;

async function removeHistories(client: Client, executions: Execution[]): Promise<void> {
  const { namespace } = client.options;
  for (let done = 0; done < executions.length; done += AT_ONCE)
    await Promise.all(
      executions.slice(done, done + AT_ONCE).map(({ workflowId, runId }) =>
        client.workflowService
          .deleteWorkflowExecution({ namespace, workflowExecution: { workflowId, runId } })
          .catch((error: unknown) => {
            if (!isNotFound(error)) throw error;
          }),
      ),
    );
}

/** Returns how many of the paths existed. */
async function removeAll(paths: readonly string[]): Promise<number> {
  const existed = await Promise.all(
    paths.map(async (path) => {
      const found = await stat(path).catch(() => null);
      await rm(path, { recursive: true, force: true });
      return found !== null;
    }),
  );
  return existed.filter(Boolean).length;
}

const NOT_FOUND = 5;
const isNotFound = (error: unknown): boolean => error instanceof Error && 'code' in error && error.code === NOT_FOUND;
