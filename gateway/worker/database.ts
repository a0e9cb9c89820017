import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import type { Database } from '../../store/database.ts';
import * as schema from '../../store/schema.ts';

const CONNECT_MS = 15_000;
/** A request asks for a row while another query may hang; more would take from the few connections that it may open. */
const CONNECTIONS = 2;

/** Connections of one request: in workerd a socket belongs to the request that opened it. */
export function openRequestDatabase(connectionString: string): Database {
  const pool = new pg.Pool({ connectionString, max: CONNECTIONS, connectionTimeoutMillis: CONNECT_MS });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return drizzle(pool, { schema });
}
