import { afterAll, beforeAll } from 'vitest';
import { openDatabase, type Database } from '../../../store/database.ts';
import { TestPostgres } from './postgres.ts';

type Store = { postgres: TestPostgres; db: Database };

/** Starts a PostgreSQL server with Trialgate's tables for this test file, and puts it into `context` before the first test. */
export function useDatabase<T extends Store>(context: T): T;
export function useDatabase(): Store;
export function useDatabase(context: Partial<Store> = {}): Partial<Store> {
  beforeAll(async () => {
    context.postgres = await TestPostgres.create();
    context.db = openDatabase(context.postgres.url);
  });
  afterAll(async () => {
    await context.db?.$client.end();
    await context.postgres?.close();
  });
  return context;
}
