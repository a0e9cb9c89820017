import { Client, Connection } from '@temporalio/client';
import type { RunStatusReport } from '../../workflows/messages.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';

const PATIENCE_MS = 5_000;

/** What a run that is under way says of itself; null when it is not, or nobody is there to answer. */
export async function askStatus(config: Deployment, runId: string): Promise<RunStatusReport | null> {
  const connection = await Connection.connect({ address: connectionsOf(config).temporalAddress, connectTimeout: '2s' }).catch(() => null);
  if (!connection) return null;
  const client = new Client({ connection });
  const asked = client.withDeadline(Date.now() + PATIENCE_MS, () => client.workflow.getHandle(runId).query<RunStatusReport>('status'));
  return asked.catch(() => null).finally(() => connection.close());
}
