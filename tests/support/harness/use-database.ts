import { afterAll, beforeAll } from 'vitest';
import { openDatabase, type Database } from '../../../store/database.ts';
import { TestPostgres, type TestDatabase } from './postgres.ts';
import { sharedPostgres } from './shared-postgres.ts';

type Store<P extends TestDatabase> = { postgres: P; db: Database };

/** Gives this test file a database with Trialgate's tables, before its first test, in `context`. */
export function useDatabase<T extends Store<TestDatabase>>(context: T): T;
export function useDatabase(): Store<TestDatabase>;
export function useDatabase(context: Partial<Store<TestDatabase>> = {}): Partial<Store<TestDatabase>> {
  return opened(context, sharedPostgres);
}

/** Does the same on a server that no other file uses, for tests that stop the server or change its settings. */
export function useServer<T extends Store<TestPostgres>>(context: T): T;
export function useServer(): Store<TestPostgres>;
export function useServer(context: Partial<Store<TestPostgres>> = {}): Partial<Store<TestPostgres>> {
  return opened(context, () => TestPostgres.create());
}

function opened<P extends TestDatabase>(context: Partial<Store<P>>, make: () => Promise<P>): Partial<Store<P>> {
  beforeAll(async () => {
    context.postgres = await make();
    context.db = openDatabase(context.postgres.url);
  });
  afterAll(async () => {
    await context.db?.$client.end();
    await context.postgres?.close();
  });
  return context;
}
