import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { Socket } from 'node:net';
import pg from 'pg';
import * as schema from './schema.ts';

export type Database = NodePgDatabase<typeof schema> & { $client: pg.Pool };

const CONNECT_MS = 15_000;
/** No query of ours takes that long: its server was lost without a word, and the connection with it. */
const SILENT_MS = 60_000;

/** A pool of connections. The caller ends it: `await db.$client.end()`. */
export function openDatabase(url: string, { maxConnections = 8, settings }: { maxConnections?: number; settings?: string } = {}): Database {
  return databaseOver({ ...withSettings(url, settings), max: maxConnections, keepAlive: true, stream: openSocket });
}

/** For a runtime that opens connections in its own way. */
export function databaseOver(options: pg.PoolConfig): Database {
  const pool = new pg.Pool({ connectionTimeoutMillis: CONNECT_MS, ...options });
  // An idle connection that the server drops must not end the process; the next query reconnects.
  pool.on('error', () => {});
  // Nor must one that is lost in the middle of a transaction: its queries fail, and say so.
  pool.on('connect', (client) => client.on('error', () => {}));
  return drizzle(pool, { schema });
}

/** Options that the URL brings would take the place of ours. They go before them: of a setting that both name, ours holds. */
function withSettings(url: string, settings: string | undefined): { connectionString: string; options: string | undefined } {
  const at = url.indexOf('?');
  const parameters = new URLSearchParams(at < 0 ? '' : url.slice(at));
  const own = parameters.getAll('options');
  if (settings === undefined || own.length === 0) return { connectionString: url, options: settings };
  parameters.delete('options');
  return { connectionString: `${url.slice(0, at)}?${parameters}`, options: [...own, settings].join(' ') };
}

function openSocket(): Socket {
  const socket = new Socket();
  return socket.setTimeout(SILENT_MS, () => socket.destroy(new Error(`connection terminated: PostgreSQL was silent for ${SILENT_MS / 1000} s`)));
}
