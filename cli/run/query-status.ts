import { Client, Connection } from '@temporalio/client';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { readStepProgress } from './step-progress.ts';
import { readTrialWaits, type TrialWaits } from './trial-waits.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';

const PATIENCE_MS = 5_000;

/** A run's report, and what it is doing inside a train step or a publication; null: in neither. */
export type RunStatus = RunStatusReport & {
  step: string | null;
  /** The counts of its trials by what they wait for. Absent if Temporal did not answer in time. */
  trial_waits?: TrialWaits;
};

/** Asks a run that is under way for its status. Returns null when it is not under way or does not answer. */
export async function queryStatus(
  config: Deployment,
  runId: string,
  { withTrials = false } = {},
): Promise<RunStatus | null> {
  const connection = await Connection.connect({
    address: connectionsOf(config).temporalAddress,
    connectTimeout: '2s',
  }).catch(() => null);
  if (!connection) return null;
  const client = new Client({ connection });
  const asked = client.withDeadline(Date.now() + PATIENCE_MS, async () => {
    const report = await client.workflow.getHandle(runId).query<RunStatusReport>('status');
    return { ...report, step: await readStepProgress(client, report) };
  });
  const answer = await asked.catch(() => null);
  // A run with many groups under way has many to ask. Its status must not be lost with them.
  const waits =
    answer !== null && withTrials
      ? await client.withDeadline(Date.now() + PATIENCE_MS, () => readTrialWaits(client, answer)).catch(() => null)
      : null;
  await connection.close();
  return answer && { ...answer, ...(waits && { trial_waits: waits }) };
}
