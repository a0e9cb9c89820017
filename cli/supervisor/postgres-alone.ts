import path from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { Deployment } from '../config/schema.ts';
import { homeFolders } from '../folders.ts';
import { postgres } from './components/postgres.ts';
import { LOOPBACK } from './gateways.ts';
import { keepAlive, type Report } from './life.ts';
import { HeldPorts } from './ports.ts';

/**
 * Starts the PostgreSQL of a stopped deployment alone, for one command. The caller holds the deployment's lock. Nothing is recorded, and the
 * port is another one than the deployment's, so that nobody takes it for a part of a deployment that runs.
 * @throws TrialgateError `missing_prerequisite` when it cannot start
 */
export async function startPostgresAlone(
  config: Deployment,
  postgresPassword: string,
  signal: AbortSignal,
): Promise<{ databaseUrl: string; stop(): Promise<void> }> {
  const held = new HeldPorts();
  const port = await held.choose(0, undefined, LOOPBACK);
  const databaseUrl = `postgres://trialgate:${postgresPassword}@${LOOPBACK}:${port}/trialgate`;
  const ready = Promise.withResolvers<void>();
  const log = path.join(homeFolders(config.home).logs, 'postgres.log');
  const report: Report = ({ status, detail }) => {
    if (status === 'ready') ready.resolve();
    if (status === 'failing')
      ready.reject(new TrialgateError('missing_prerequisite', `PostgreSQL cannot start: ${detail} (log: ${log})`));
  };
  const ended = new AbortController();
  const component = postgres({ config, ports: { postgres: port }, held, postgresPassword, databaseUrl, gateways: [] });
  const life = keepAlive(component, { log, report, whenReady: async () => {} }, ended.signal);
  const stop = async (): Promise<void> => {
    ended.abort();
    await life;
    await held.close();
  };
  const interrupt = (): void => ready.reject(signal.reason);
  signal.addEventListener('abort', interrupt);
  try {
    if (signal.aborted) interrupt();
    await ready.promise;
    return { databaseUrl, stop };
  } catch (error) {
    await stop();
    throw error;
  } finally {
    signal.removeEventListener('abort', interrupt);
  }
}
