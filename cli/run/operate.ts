import type { Deployment } from '../config/schema.ts';
import { withDeployment } from './connect.ts';
import { updateRun } from './update-run.ts';

/** Sends an update to a run and prints its answer. */
export async function operate(config: Deployment, runId: string, update: string, argument?: object): Promise<void> {
  console.log(await withDeployment(config, ({ client }) => updateRun(client, runId, update, argument)));
}
