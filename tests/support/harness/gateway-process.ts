import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';

type Options = {
  engines: readonly string[];
  databaseUrl: string;
  adminKey: string | null;
  secret: string;
  /** Further flags. */
  flags?: readonly string[];
};

const MAIN = fileURLToPath(new URL('../../../cli/main.ts', import.meta.url));

/** Runs `trialgate gateway` as a process of its own, at the same address each time that it starts. */
export class GatewayProcess {
  readonly #options: Options;
  #child: ChildProcess | null = null;
  #port = '0';

  constructor(options: Options) {
    this.#options = options;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Resolves when it listens. */
  async start(): Promise<this> {
    const { engines, databaseUrl, adminKey, secret, flags = [] } = this.#options;
    const given = [
      '--port',
      this.#port,
      '--host',
      '127.0.0.1',
      '--database-url',
      databaseUrl,
      ...(adminKey === null ? [] : ['--admin-key', adminKey]),
      '--secret',
      secret,
    ];
    const args = [MAIN, 'gateway', ...given, ...flags, ...engines.flatMap((url) => ['--engine', url])];
    // The child stops when its channel closes, which happens when this process dies.
    const child = spawn(process.execPath, args, {
      cwd: tmpdir(),
      env: { PATH: process.env['PATH'] },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    this.#child = child;
    let said = '';
    const listening = Promise.withResolvers<string>();
    const onOutput = (bytes: Buffer) => {
      if (said.length > 10_000) return;
      said += bytes.toString();
      const port = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1];
      if (port !== undefined) listening.resolve(port);
    };
    child.stdout?.on('data', onOutput);
    child.stderr?.on('data', onOutput);
    child.on('exit', () => listening.reject(new Error(`the gateway ended: ${said}`)));
    this.#port = await listening.promise;
    return this;
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }
}
