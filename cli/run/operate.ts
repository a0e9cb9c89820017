import { readRun } from '../../activities/run/read-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Deployment } from '../config/schema.ts';
import { withDeployment, type DeploymentClients } from './connect.ts';
import { updateRun } from './update-run.ts';

/** Sends an update to a run and prints its answer. */
export async function operate(config: Deployment, runId: string, update: string, argument?: object): Promise<void> {
  console.log(await withDeployment(config, (connected) => askRun(connected, runId, update, argument)));
}

/** Sends an update to a run and returns its answer. */
export async function askRun(
  { client, db }: DeploymentClients,
  runId: string,
  update: string,
  argument?: object,
): Promise<string> {
  try {
    return await updateRun(client, runId, update, argument);
  } catch (error) {
    // Temporal does not tell a run that has ended from a name that no run has.
    if (error instanceof TrialgateError && error.code === 'not_found') await readRun(db, runId);
    throw error;
  }
}
