import { Client, Connection } from '@temporalio/client';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';

const PATIENCE_MS = 5_000;

/** Asks a run that is under way for its status. Returns null when it is not under way or does not answer. */
export async function queryStatus(config: Deployment, runId: string): Promise<RunStatusReport | null> {
  const connection = await Connection.connect({
    address: connectionsOf(config).temporalAddress,
    connectTimeout: '2s',
  }).catch(() => null);
  if (!connection) return null;
  const client = new Client({ connection });
  const asked = client.withDeadline(Date.now() + PATIENCE_MS, () =>
    client.workflow.getHandle(runId).query<RunStatusReport>('status'),
  );
  return asked.catch(() => null).finally(() => connection.close());
}
