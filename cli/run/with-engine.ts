import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Deployment } from '../config/schema.ts';
import { folderElsewhere } from '../supervisor/components/postgres-home.ts';
import { startStack } from '../supervisor/stack.ts';

/**
 * Runs `body` with a PostgreSQL and a gateway of its own in front of an engine that the deployment does not have. Both are removed
 * afterwards, with all that they recorded.
 */
export async function withEngine<T>(
  deployment: Deployment,
  engine: string,
  signal: AbortSignal,
  body: (own: Deployment) => Promise<T>,
): Promise<T> {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-try-'));
  const {
    database_url: _database,
    gateway_url: _gateway,
    admin_key: _key,
    secret: _secret,
    engines_file: _file,
    engines_kubernetes: _kubernetes,
    ...rest
  } = deployment;
  const own: Deployment = { ...rest, home, engines: [engine], gateways: 1, gateway_port: 0, postgres_port: 0 };
  try {
    const stack = await startStack({ config: own, only: ['postgres', 'gateway'] }, signal);
    return await body(own).finally(() => stack.stop());
  } finally {
    await Promise.all([home, folderElsewhere(home)].map((each) => rm(each, { recursive: true, force: true })));
  }
}
