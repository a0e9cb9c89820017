import { isRunning } from '../../activities/temporal/is-running.ts';
import { TrialgateError } from '../../core/errors.ts';
import { readQueue } from '../../store/queries/pool-queue.ts';
import type { DeploymentClients } from './connect.ts';

/**
 * A run that begins at the same moment can still get the engines; it is then blocked if its weights do not fit.
 * @throws TrialgateError `bad_input` when a run or an evaluation has the deployment's engines, or waits for them
 */
export async function requireIdleEngines({ client, db }: DeploymentClients): Promise<void> {
  const { owner, waiting } = await readQueue(db);
  const [next] = waiting;
  const refuse = (what: string, how: string): never => {
    throw new TrialgateError('bad_input', `${what}, and needs the model that they run: ${how}`);
  };
  const orCancel = (runId: string) => `wait until it has ended, or end it now with \`npx trialgate cancel ${runId}\``;
  if (owner !== null) {
    if (await isRunning({ temporal: client }, owner)) refuse(`run ${owner} has the engines`, orCancel(owner));
    // A run that was terminated does not count as an owner. An evaluation still owns the engines after its run has ended.
    const query = `ExecutionStatus = "Running" AND WorkflowId STARTS_WITH "${owner}/"`;
    for await (const { workflowId } of client.workflow.list({ query, pageSize: 1 }))
      refuse(`${workflowId} has the engines`, 'wait until it has ended');
  }
  if (next) refuse(`run ${next.runId} waits for the engines`, orCancel(next.runId));
}
