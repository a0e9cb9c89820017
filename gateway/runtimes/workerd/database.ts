import { databaseOver, type Database } from '../../../store/database.ts';

/** A connection costs more than a query that waits for another, and a request may have few open at once, the engine's among them. */
const CONNECTIONS = 1;

/** Opens connections for one request, because in workerd a socket belongs to the request that opened it. */
export const openRequestDatabase = (connectionString: string): Database =>
  databaseOver({ connectionString, max: CONNECTIONS });
