import { execFile } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { postgresHome } from '../../../cli/supervisor/components/postgres-home.ts';
import { LOOPBACK } from '../../../cli/supervisor/gateways.ts';
import { freePort } from '../../../core/free-port.ts';
import { startChild } from './child.ts';

export type BenchPostgres = AsyncDisposable & {
  pid: number;
  /** The folder of its data. A commit waits for this disk. */
  data: string;
  /** Makes an empty database, which is dropped at the end. */
  database: (name: string) => Promise<AsyncDisposable & { url: string }>;
};

/** Starts PostgreSQL as a deployment runs it, with `fsync` and `synchronous_commit` on. Its folder is removed at the end. */
export async function startPostgres(signal: AbortSignal): Promise<BenchPostgres> {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-bench-'));
  const clear = () => rmSync(folder, { recursive: true, force: true });
  try {
    chmodSync(folder, 0o755);
    const { data, binaries, user } = postgresHome(folder);
    const env = { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8', TZ: 'UTC' };
    const initial = ['-D', data, '-U', 'trialgate', '-A', 'trust', '-E', 'UTF8', '--locale=C.UTF-8'];
    await promisify(execFile)(join(binaries, 'bin/initdb'), initial, { env, cwd: data, signal, ...user });
    const port = await freePort(LOOPBACK);
    const settings = {
      port,
      listen_addresses: LOOPBACK,
      unix_socket_directories: '',
      max_connections: 200,
      dynamic_shared_memory_type: 'mmap',
      fsync: 'on',
      synchronous_commit: 'on',
    };
    const args = ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])];
    const file = join(binaries, 'bin/postgres');
    const child = await startChild({
      name: 'PostgreSQL',
      file,
      args,
      env,
      cwd: data,
      user,
      ready: /ready to accept connections/,
      stopSignal: 'SIGINT',
      signal,
    });
    const urlOf = (name: string) => `postgres://trialgate@${LOOPBACK}:${port}/${name}`;
    return {
      pid: child.pid,
      data,
      async database(name) {
        await query(urlOf('postgres'), `create database ${name}`);
        return {
          url: urlOf(name),
          [Symbol.asyncDispose]: () => query(urlOf('postgres'), `drop database ${name} with (force)`),
        };
      },
      async [Symbol.asyncDispose]() {
        await child.stop();
        clear();
      },
    };
  } catch (error) {
    clear();
    throw error;
  }
}

async function query(connectionString: string, text: string): Promise<void> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}
