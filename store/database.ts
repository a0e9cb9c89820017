import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { Socket } from 'node:net';
import pg from 'pg';
import * as schema from './schema.ts';

export type Database = NodePgDatabase<typeof schema> & { $client: pg.Pool };

const CONNECT_MS = 15_000;
/** No query takes this long. A silent server is lost, and its connection is ended. */
const SILENT_MS = 60_000;

/** Opens a pool of connections. The caller ends it with `await db.$client.end()`. */
export function openDatabase(
  url: string,
  { maxConnections = 8, settings }: { maxConnections?: number; settings?: string } = {},
): Database {
  return databaseOver({ ...withSettings(url, settings), max: maxConnections, keepAlive: true, stream: openSocket });
}

/** Opens a database with connection options of the caller, for a runtime that opens connections in its own way. */
export function databaseOver(options: pg.PoolConfig): Database {
  const pool = new pg.Pool({ connectionTimeoutMillis: CONNECT_MS, ...options });
  // An idle connection that the server drops must not end the process; the next query reconnects.
  pool.on('error', () => {});
  // Neither must a connection that is lost within a transaction: its queries fail with the reason.
  pool.on('connect', (client) => client.on('error', () => {}));
  return drizzle(pool, { schema });
}

/** `options` of the URL would replace ours, so they are put before ours: PostgreSQL takes the last value of a setting that both have. */
function withSettings(
  url: string,
  settings: string | undefined,
): { connectionString: string; options: string | undefined } {
  const at = url.indexOf('?');
  const parameters = new URLSearchParams(at < 0 ? '' : url.slice(at));
  const own = parameters.getAll('options');
  if (settings === undefined || own.length === 0) return { connectionString: url, options: settings };
  parameters.delete('options');
  return { connectionString: `${url.slice(0, at)}?${parameters}`, options: [...own, settings].join(' ') };
}

function openSocket(): Socket {
  const socket = new Socket();
  return socket.setTimeout(SILENT_MS, () =>
    socket.destroy(new Error(`connection terminated: PostgreSQL was silent for ${SILENT_MS / 1000} s`)),
  );
}
