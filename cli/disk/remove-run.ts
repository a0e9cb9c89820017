import { rm } from 'node:fs/promises';
import { WorkflowNotFoundError } from '@temporalio/common';
import { TrialgateError } from '../../core/errors.ts';
import { deleteRun } from '../../store/queries/delete-run.ts';
import type { DeploymentClients } from '../run/connect.ts';

/**
 * Deletes a run: its trials, calls, checkpoints and batches. Runs that were forked from it keep their own files. Returns a sentence about the
 * result.
 * @throws TrialgateError `bad_input` when the run is under way, `not_found` when there is none
 */
export async function removeRun({ client, db }: DeploymentClients, runId: string): Promise<string> {
  const description = await client.workflow
    .getHandle(runId)
    .describe()
    .catch((error: unknown) => {
      if (error instanceof WorkflowNotFoundError) return null;
      throw error;
    });
  if (description?.status.name === 'RUNNING')
    throw new TrialgateError('bad_input', `run ${runId} is under way: "npx trialgate cancel ${runId}" ends it`);
  const files = await deleteRun(db, runId);
  if (!files) throw new TrialgateError('not_found', `there is no run ${runId}: "npx trialgate show" lists all runs`);
  // The manifest goes with its folder; what a crash leaves here, `gc` finds.
  for (const path of [...files.checkpoints, ...files.batches]) await rm(path, { recursive: true, force: true });
  return `run ${runId} is deleted, with ${files.checkpoints.length} checkpoint(s) and ${files.batches.length} batch file(s)`;
}
