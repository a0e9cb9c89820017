import { inject } from 'vitest';
import { openDatabase } from '../../../store/database.ts';
import type { TestDatabase } from './postgres.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server that `postgres-setup.ts` starts. */
    postgresUrl: string;
  }
}

/** The database that new ones are copies of. Nobody connects to it, because a database in use cannot be copied. */
export const EMPTY = 'empty';

let databases = 0;

/** Makes a database with Trialgate's tables on the server that all test files of a run share. */
export async function sharedPostgres(): Promise<TestDatabase> {
  const server = inject('postgresUrl');
  const name = `test_${process.pid}_${++databases}`;
  await execute(server, `create database ${name} template ${EMPTY}`);
  return {
    url: Object.assign(new URL(server), { pathname: name }).href,
    close: () => execute(server, `drop database ${name} with (force)`),
  };
}

export async function execute(url: string, statement: string): Promise<void> {
  const db = openDatabase(url, { maxConnections: 1 });
  await db.execute(statement).finally(() => db.$client.end());
}
