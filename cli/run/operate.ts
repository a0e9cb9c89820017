import { readRun } from '../../activities/run/read-run.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { Deployment } from '../config/schema.ts';
import { withDeployment } from './connect.ts';
import { updateRun } from './update-run.ts';

/** Sends an update to a run and prints its answer. */
export async function operate(config: Deployment, runId: string, update: string, argument?: object): Promise<void> {
  const answer = await withDeployment(config, async ({ client, db }) => {
    try {
      return await updateRun(client, runId, update, argument);
    } catch (error) {
      // Temporal does not tell a run that has ended from a name that no run has.
      if (error instanceof TrialgateError && error.code === 'not_found') await readRun(db, runId);
      throw error;
    }
  });
  console.log(answer);
}
