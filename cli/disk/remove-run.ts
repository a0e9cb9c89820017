import { rm, stat } from 'node:fs/promises';
import { TrialgateError } from '../../core/errors.ts';
import { deleteRun } from '../../store/queries/delete-run.ts';
import type { DeploymentClients } from '../run/connect.ts';

/**
 * Deletes a run: its trials, calls, checkpoints and batches, and its workflow. Runs that were forked from it keep their own files. Returns a
 * sentence about the result.
 * @throws TrialgateError `bad_input` when the run or an evaluation of it is under way, `not_found` when there is none
 */
export async function removeRun({ client, db }: DeploymentClients, runId: string): Promise<string> {
  const query = `ExecutionStatus = "Running" AND (WorkflowId = "${runId}" OR WorkflowId STARTS_WITH "${runId}/")`;
  for await (const { workflowId } of client.workflow.list({ query, pageSize: 1 }))
    throw new TrialgateError(
      'bad_input',
      `run ${runId} is under way (${workflowId}): "npx trialgate cancel ${runId}" ends it`,
    );
  const files = await deleteRun(db, runId);
  if (!files) throw new TrialgateError('not_found', `there is no run ${runId}: "npx trialgate show" lists all runs`);
  await client.workflowService
    .deleteWorkflowExecution({ namespace: client.options.namespace, workflowExecution: { workflowId: runId } })
    .catch((error: unknown) => {
      if (!isNotFound(error)) throw error;
    });
  // If this process ends here, `gc` removes the files.
  const removed = await Promise.all([files.checkpoints, files.batches].map(removeAll));
  const [checkpoints = 0, batches = 0] = removed;
  return `run ${runId} is deleted, with ${checkpoints} checkpoint(s) and ${batches} batch file(s) of this machine`;
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
