import { TrialgateError } from '../../core/errors.ts';
import { RUN_ID } from '../../core/ids.ts';
import { runKey } from '../../core/keys.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';

/** Returns where a program outside claims a run's groups, and with which key. The run need not have started. */
export function runAccess(deployment: Deployment, runId: string): { run: string; url: string; key: string } {
  if (!RUN_ID.test(runId))
    throw new TrialgateError(
      'bad_input',
      `run id ${JSON.stringify(runId)}: use letters, digits, '.', '_' and '-', at most 64`,
    );
  const { gatewayUrl, secret } = connectionsOf(deployment);
  return { run: runId, url: gatewayUrl, key: runKey(secret, runId) };
}
