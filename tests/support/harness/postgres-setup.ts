import type { TestProject } from 'vitest/node';
import { TEMPLATE, TestPostgres } from './postgres.ts';
import { EMPTY, execute } from './shared-postgres.ts';

/**
 * Starts the server that all test files of a run share. Also makes the data folder of which servers of their own are copies, because a
 * copy takes a tenth of the time of a new one.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const template = await TestPostgres.create();
  await template.stop();
  process.env[TEMPLATE] = template.data;
  const shared = await TestPostgres.create();
  const servers = [template, shared];
  const abandon = () => servers.forEach((server) => server.abandon());
  const leave = () => process.exit(143);
  process.once('exit', abandon).once('SIGTERM', leave);
  await execute(shared.url, `create database ${EMPTY} template postgres`);
  project.provide('postgresUrl', shared.url);
  return async () => {
    delete process.env[TEMPLATE];
    process.off('exit', abandon).off('SIGTERM', leave);
    await Promise.all(servers.map((server) => server.close()));
  };
}
