import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import type { Database } from '../../store/database.ts';
import * as schema from '../../store/schema.ts';

const CONNECT_MS = 15_000;
/** A connection costs more than a query that waits for another; and a request may have few open at once, its engine's among them. */
const CONNECTIONS = 1;

/** Connections of one request: in workerd a socket belongs to the request that opened it. */
export function openRequestDatabase(connectionString: string): Database {
  const pool = new pg.Pool({ connectionString, max: CONNECTIONS, connectionTimeoutMillis: CONNECT_MS });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return drizzle(pool, { schema });
}
