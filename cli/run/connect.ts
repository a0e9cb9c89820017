import { Client, Connection } from '@temporalio/client';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabase, type Database } from '../../store/database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
import { readSecrets } from '../config/secrets.ts';
import { withShutdownSignal } from '../signals.ts';
import { hasStoppedData } from '../supervisor/components/postgres-home.ts';
import { takeDeployment } from '../supervisor/lock.ts';
import { startPostgresAlone } from '../supervisor/postgres-alone.ts';
import { livingState } from '../supervisor/state.ts';
import { retryDroppedUpdates } from './retry-updates.ts';

export type DeploymentClients = { client: Client; db: Database };

/** Connects to the deployment's Temporal and store while `body` runs. */
export async function withDeployment<T>(
  config: Deployment,
  body: (connected: DeploymentClients) => Promise<T>,
): Promise<T> {
  const { temporalAddress, databaseUrl } = connectionsOf(config);
  const connection = await Connection.connect({ address: temporalAddress, connectTimeout: '5s' }).catch(
    (cause: unknown) => {
      throw new TrialgateError(
        'missing_prerequisite',
        `Temporal does not answer at ${temporalAddress}: start the deployment with "npx trialgate up"`,
        { cause },
      );
    },
  );
  const db = openDatabase(databaseUrl, { maxConnections: 4 });
  try {
    return await body({ client: new Client({ connection, interceptors: { workflow: [retryDroppedUpdates] } }), db });
  } finally {
    await db.$client.end();
    await connection.close();
  }
}

/** The body of a command that uses the store. `isStopped`: the deployment is stopped, and only its PostgreSQL runs, for this command. */
export type StoreBody<T> = (db: Database, isStopped: boolean) => Promise<T>;

/**
 * Connects to the deployment's store while `body` runs. If the deployment is stopped and has a PostgreSQL of its own, that one alone runs
 * meanwhile. One command at a time can do so; others, and a start of the deployment, wait.
 */
export async function withStore<T>(config: Deployment, body: StoreBody<T>, maxConnections = 2): Promise<T> {
  let isWaiting = false;
  for (const end = Date.now() + BUSY_MS; ; await sleep(200)) {
    const { databaseUrl } = connectionsOf(config);
    const { db, refusal } = await openStore(databaseUrl, maxConnections);
    if (db) return closing(db, (opened) => body(opened, false));
    const password = readSecrets(config.home)?.postgres_password;
    if (config.database_url || password === undefined || !isRefused(refusal)) throw refusal;
    const lock = await takeDeployment(config.home);
    if (lock) {
      try {
        if (!hasStoppedData(config.home)) throw refusal;
        return await readAlone(config, password, body, maxConnections);
      } finally {
        await lock.release();
      }
    }
    if (livingState(config.home)?.status === 'ready') throw refusal;
    if (!isWaiting) console.error('waiting until the deployment has started, or another command has read its store');
    isWaiting = true;
    if (Date.now() > end) throw busy(refusal);
  }
}

/** Does the same only where PostgreSQL runs, for what needs the rest of the deployment too. */
export async function withRunningStore<T>(
  config: Deployment,
  body: (db: Database) => Promise<T>,
  maxConnections = 2,
): Promise<T> {
  const { db, refusal } = await openStore(connectionsOf(config).databaseUrl, maxConnections);
  if (!db) throw refusal;
  return closing(db, body);
}

/** A command waits so long for a deployment that starts, or for another command that reads the store. */
const BUSY_MS = 60_000;

const busy = (cause: Error): TrialgateError =>
  new TrialgateError(
    'store_unavailable',
    `PostgreSQL has not answered for ${BUSY_MS / 1000} s: \`npx trialgate status\` says whether the deployment is starting. If it is stopped, another command such as \`export\` reads its store: try again when that has ended`,
    { cause },
  );

async function readAlone<T>(
  config: Deployment,
  password: string,
  body: StoreBody<T>,
  maxConnections: number,
): Promise<T> {
  return withShutdownSignal(async (signal) => {
    const own = await startPostgresAlone(config, password, signal);
    // Without its connections the body ends soon.
    const interrupt = (): void => void own.stop();
    signal.addEventListener('abort', interrupt);
    try {
      return await closing(openDatabase(own.databaseUrl, { maxConnections }), (db) => body(db, true));
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      await own.stop();
    }
  });
}

/** True when nothing listens where PostgreSQL would. Any other error comes from a server that lives. */
const isRefused = ({ cause }: TrialgateError): boolean =>
  cause instanceof Error && 'code' in cause && cause.code === 'ECONNREFUSED';

type Opened = { db: Database; refusal?: undefined } | { db?: undefined; refusal: TrialgateError };

async function openStore(databaseUrl: string, maxConnections: number): Promise<Opened> {
  const db = openDatabase(databaseUrl, { maxConnections });
  try {
    await db.$client.query('select 1');
    return { db };
  } catch (cause) {
    await db.$client.end();
    const message = 'PostgreSQL does not answer: start the deployment with "npx trialgate up"';
    return { refusal: new TrialgateError('missing_prerequisite', message, { cause }) };
  }
}

async function closing<T>(db: Database, body: (db: Database) => Promise<T>): Promise<T> {
  try {
    return await body(db);
  } finally {
    await db.$client.end();
  }
}
