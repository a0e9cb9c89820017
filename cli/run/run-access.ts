import { requireRunId } from '../../core/ids.ts';
import { runKey } from '../../core/keys.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';

/** Returns where a program outside claims a run's groups, and with which key. The run need not have started. */
export function runAccess(deployment: Deployment, runId: string): { run: string; url: string; key: string } {
  requireRunId(runId);
  const { gatewayUrl, secret } = connectionsOf(deployment);
  return { run: runId, url: gatewayUrl, key: runKey(secret, runId) };
}
