import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Deployment } from '../../../cli/config/schema.ts';
import { INSTALLS } from '../../../cli/folders.ts';
import { groupOf, isAlive } from '../../../cli/supervisor/processes.ts';
import { readState } from '../../../cli/supervisor/state.ts';
import { currentTest } from './current-test.ts';
import { temporaryDeployment, type TemporaryDeployment } from './temporary-deployment.ts';

const run = promisify(execFile);

/** A complete deployment for one test: a temporary folder, free ports, real processes. */
export class TestDeployment {
  readonly home: string;
  readonly config: Deployment;
  readonly env: NodeJS.ProcessEnv;
  readonly #removeFolder: () => Promise<void>;

  private constructor({ home, config, env, remove }: TemporaryDeployment) {
    this.home = home;
    this.config = config;
    this.env = env;
    this.#removeFolder = remove;
  }

  static async create(settings: Record<string, string> = {}): Promise<TestDeployment> {
    return new TestDeployment(await temporaryDeployment(settings));
  }

  /** Runs the `trialgate` command as a user would, and returns its output. */
  async trialgate(...args: string[]): Promise<string> {
    const { stdout } = await run(INSTALLS.node, [INSTALLS.main, ...args], {
      env: this.env,
      cwd: this.home,
      maxBuffer: 2 ** 26,
      ...(currentTest.signal && { signal: currentTest.signal }),
    });
    return stdout;
  }

  up(): Promise<string> {
    return this.trialgate('up', '--no-install');
  }

  /** Kills a component's whole process group, or the supervisor. Returns the number of killed processes. */
  kill(name: string): number {
    const state = readState(this.home);
    const leader =
      name === 'supervisor' ? state?.supervisor : state?.components.find((each) => each.name === name)?.process;
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
    await this.#removeFolder();
  }
}
