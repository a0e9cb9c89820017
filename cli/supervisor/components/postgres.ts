import { execFile } from 'node:child_process';
import { chownSync, existsSync, readFileSync, readlinkSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { TrialgateError } from '../../../core/errors.ts';
import { requireDatabase } from '../../database.ts';
import type { Component } from '../component.ts';
import { LOOPBACK } from '../gateways.ts';
import type { Plan } from '../plan.ts';
import { endGroup, identify } from '../processes.ts';
import { postgresHome, type PostgresHome } from './postgres-home.ts';

const run = promisify(execFile);

/** What PostgreSQL needs of a plan. */
type PostgresPlan = Pick<Plan, 'config' | 'held' | 'postgresPassword' | 'databaseUrl' | 'gateways'> & {
  ports: Pick<Plan['ports'], 'postgres'>;
};

/** Returns our own PostgreSQL. It listens only on loopback, has no socket file, and requires a password. */
export function postgres(plan: PostgresPlan): Component & { note: string | null } {
  const home = postgresHome(plan.config.home);
  const port = plan.ports.postgres;
  const adminUrl = `postgres://trialgate:${plan.postgresPassword}@${LOOPBACK}:${port}/postgres`;
  return {
    name: 'postgres',
    note: home.note,
    address: `${LOOPBACK}:${port}, data in ${home.data}`,
    needs: [],
    async prepare() {
      await endStale(home.data);
      if (!existsSync(path.join(home.data, 'PG_VERSION'))) await initialize(home, plan.postgresPassword);
      await plan.held.handOver(port, LOOPBACK, 'PostgreSQL', 'postgres_port');
    },
    launch: () => ({
      file: path.join(home.binaries, 'bin/postgres'),
      args: ['-D', home.data, ...settings(port, plan.gateways.length)],
      env: { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8', TZ: 'UTC' },
      cwd: home.data,
      user: home.user,
    }),
    isReady: () => answers(adminUrl),
    async afterReady() {
      await createDatabase(adminUrl).catch((error: unknown) => {
        throw isWrongPassword(error) ? ofAnotherDeployment(home.data, plan.config.home) : error;
      });
      await requireDatabase(plan.databaseUrl);
    },
    readyWithinMs: 120_000,
    // SIGINT is PostgreSQL's fast shutdown: it disconnects clients and flushes its data.
    stopSignal: 'SIGINT',
    stopWithinMs: 20_000,
  };
}

function settings(port: number, gateways: number): string[] {
  const values = {
    port,
    listen_addresses: LOOPBACK,
    unix_socket_directories: '',
    // Enough for each gateway's pool and the rest of the deployment.
    max_connections: 190 + 10 * gateways,
    // Files in the data folder are removed at each start. Files in /dev/shm would stay after a kill.
    dynamic_shared_memory_type: 'mmap',
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

async function initialize(home: PostgresHome, password: string): Promise<void> {
  const own = home.user;
  // initdb refuses a folder with files of an interrupted initdb.
  await clear(home.data, own);
  const passwordFile = path.join(home.data, '..', `.pw-${process.pid}`);
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (own) chownSync(passwordFile, own.uid, own.gid);
  const args = [
    '-D',
    home.data,
    '-U',
    'trialgate',
    '-A',
    'scram-sha-256',
    `--pwfile=${passwordFile}`,
    '-E',
    'UTF8',
    '--locale=C.UTF-8',
  ];
  try {
    await run(path.join(home.binaries, 'bin/initdb'), args, {
      env: { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8' },
      cwd: home.data,
      ...own,
    });
  } catch (error) {
    const output = error instanceof Error && 'stderr' in error ? String(error.stderr) : String(error);
    await clear(home.data, own);
    const reason = /no space left/i.test(output) ? 'the disk is full' : output.trim().split('\n').slice(-3).join(' ');
    throw new TrialgateError('missing_prerequisite', `PostgreSQL's data cannot be made in ${home.data}: ${reason}`);
  } finally {
    rmSync(passwordFile, { force: true });
  }
}

/** Empties the folder. The folder itself stays, with its owner. */
async function clear(data: string, own: PostgresHome['user']): Promise<void> {
  await run('/bin/sh', ['-c', 'cd "$1" && rm -rf ./* ./.[!.]*', 'sh', data], { cwd: '/', ...own });
}

/** Ends a server that outlived its supervisor, and removes the lock file of a dead one, whose pid may now belong to another process. */
async function endStale(data: string): Promise<void> {
  const file = path.join(data, 'postmaster.pid');
  if (!existsSync(file)) return;
  const pid = Number(readFileSync(file, 'utf8').split('\n')[0]);
  if (runsPostgres(pid, data)) await endGroup(identify(pid), 'SIGINT', 10_000);
  if (existsSync(file)) unlinkSync(file);
}

function runsPostgres(pid: number, data: string): boolean {
  try {
    const inIt = readlinkSync(`/proc/${pid}/cwd`) === data;
    return inIt && readlinkSync(`/proc/${pid}/exe`).endsWith('/postgres');
  } catch {
    return false;
  }
}

/** PostgreSQL's code of a refused password. */
const isWrongPassword = (error: unknown): boolean => error instanceof pg.DatabaseError && error.code === '28P01';

function ofAnotherDeployment(data: string, home: string): TrialgateError {
  const secrets = path.join(home, 'secrets.json');
  return new TrialgateError(
    'missing_prerequisite',
    `PostgreSQL's data in ${data} has another password than ${secrets}: it is of an earlier deployment in the same folder. Put that deployment's secrets.json back, ` +
      `or remove the data with \`rm -r ${data}\` if you need none of its runs; then start again`,
  );
}

/** True when the server answers. It answers a wrong password too. */
async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('select 1');
    return true;
  } catch (error) {
    return isWrongPassword(error);
  } finally {
    await client.end().catch(() => {});
  }
}

async function createDatabase(adminUrl: string): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl });
  client.on('error', () => {});
  await client.connect();
  try {
    const found = await client.query(`select 1 from pg_database where datname = 'trialgate'`);
    if (found.rowCount === 0) await client.query('create database trialgate');
  } finally {
    await client.end();
  }
}
