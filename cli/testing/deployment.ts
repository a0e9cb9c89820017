import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { resolveConfig } from '../config/resolve.ts';
import type { Deployment } from '../config/schema.ts';
import { INSTALLS } from '../folders.ts';
import { groupOf, isAlive } from '../supervisor/processes.ts';
import { readState } from '../supervisor/state.ts';

const run = promisify(execFile);

/** A whole deployment of its own: a temporary folder, free ports, every process real. */
export class TestDeployment {
  readonly home: string;
  readonly config: Deployment;
  readonly env: NodeJS.ProcessEnv;

  private constructor(home: string, settings: Record<string, string>) {
    this.home = home;
    const own = { TRIALGATE_HOME: home, TRIALGATE_GATEWAY_PORT: '0', TRIALGATE_TEMPORAL_PORT: '0', TRIALGATE_POSTGRES_PORT: '0' };
    this.env = { PATH: process.env['PATH'], HOME: home, LANG: 'C.UTF-8', ...own, ...settings };
    this.config = resolveConfig({ env: this.env, cwd: home }).config;
  }

  static async create(settings: Record<string, string> = {}): Promise<TestDeployment> {
    const home = await mkdtemp(join(tmpdir(), 'trialgate-'));
    // PostgreSQL runs as another user where we are root, and its data is to be removed with the rest.
    await chmod(home, 0o755);
    return new TestDeployment(home, settings);
  }

  /** The `trialgate` command, as a user would type it. */
  async trialgate(...args: string[]): Promise<string> {
    const { stdout } = await run(INSTALLS.node, [INSTALLS.main, ...args], { env: this.env, cwd: this.home, maxBuffer: 2 ** 26 });
    return stdout;
  }

  up(): Promise<string> {
    return this.trialgate('up', '--no-install');
  }

  /** Ends a component's whole process group, or the supervisor, at once. Returns the processes that were ended. */
  kill(name: string): number {
    const state = readState(this.home);
    const leader = name === 'supervisor' ? state?.supervisor : state?.components.find((each) => each.name === name)?.process;
    if (!leader || !isAlive(leader)) throw new Error(`${name} does not run`);
    const group = name === 'supervisor' ? [leader.pid] : groupOf(leader);
    for (const pid of group) process.kill(pid, 'SIGKILL');
    return group.length;
  }

  killEverything(): void {
    this.kill('supervisor');
    for (const { name } of readState(this.home)?.components ?? []) this.kill(name);
  }

  async remove(): Promise<void> {
    await this.trialgate('down');
    await rm(this.home, { recursive: true, force: true });
  }
}
