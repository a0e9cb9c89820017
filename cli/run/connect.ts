import { Client, Connection } from '@temporalio/client';
import { openDatabase, type Database } from '../../store/database.ts';
import { TrialgateError } from '../../core/errors.ts';
import { connectionsOf } from '../config/connections.ts';
import type { Deployment } from '../config/schema.ts';
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
        `Temporal does not answer at ${temporalAddress}: start the stack with "npx trialgate up"`,
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

/** Connects to the deployment's store while `body` runs. */
export async function withStore<T>(
  config: Deployment,
  body: (db: Database) => Promise<T>,
  maxConnections = 2,
): Promise<T> {
  const db = openDatabase(connectionsOf(config).databaseUrl, { maxConnections });
  try {
    await db.$client.query('select 1').catch((cause: unknown) => {
      throw new TrialgateError(
        'store_unavailable',
        'PostgreSQL does not answer: start the stack with "npx trialgate up"',
        { cause },
      );
    });
    return await body(db);
  } finally {
    await db.$client.end();
  }
}
