import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { TrialgateError } from '../../../core/errors.ts';
import { endGroup, identify } from '../../../cli/supervisor/processes.ts';

export type ChildOptions = {
  name: string;
  file: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  user?: { uid?: number; gid?: number };
  /** Matches its output when it serves. The first group is kept. */
  ready: RegExp;
  readyWithinMs?: number;
  stopSignal?: NodeJS.Signals;
  signal: AbortSignal;
};

export type Child = AsyncDisposable & {
  pid: number;
  /** The first group of `ready`. */
  readyMatch: string;
  /** Returns the last lines of its output. */
  tail: () => string;
  /** Returns the last line of its output that names an error. */
  lastError: () => string | undefined;
  stop: () => Promise<void>;
};

const TAIL = 20_000;

/** Starts a process and returns when it serves. It has its own process group, so that a Ctrl-C reaches only us. */
export async function startChild(options: ChildOptions): Promise<Child> {
  const {
    name,
    file,
    args,
    env,
    cwd,
    user = {},
    ready,
    readyWithinMs = 60_000,
    stopSignal = 'SIGTERM',
    signal,
  } = options;
  signal.throwIfAborted();
  // The channel closes when this process ends in any way, which tells the child to end.
  const child = spawn(file, args, { env, cwd, detached: true, stdio: ['ignore', 'pipe', 'pipe', 'ipc'], ...user });
  const { pid } = child;
  if (pid === undefined) {
    const [error] = (await once(child, 'error')) as [Error];
    throw new TrialgateError('missing_prerequisite', `${name} cannot be started: ${error.message}`);
  }
  const leader = identify(pid);
  let text = '';
  const readyMatch = Promise.withResolvers<string>();
  const take = (data: Buffer) => {
    text = (text + data.toString('utf8')).slice(-TAIL);
    const found = ready.exec(text);
    if (found) readyMatch.resolve(found[1] ?? '');
  };
  child.stdout?.on('data', take);
  child.stderr?.on('data', take);
  child.on('error', () => {});
  child.once('exit', (code, how) =>
    readyMatch.reject(
      new TrialgateError('missing_prerequisite', `${name} ended with ${how ?? code}: ${lastLines(text)}`),
    ),
  );
  const tail = () => lastLines(text);
  const lastError = () => [...text.matchAll(/\b\w*Error: .*/g)].at(-1)?.[0];
  const stop = async () => {
    await endGroup(leader, stopSignal, 15_000);
    await exited(child);
  };
  const late = AbortSignal.timeout(readyWithinMs);
  const give = () =>
    readyMatch.reject(
      signal.aborted
        ? signal.reason
        : new TrialgateError('missing_prerequisite', `${name} was not ready in ${readyWithinMs / 1000} s: ${tail()}`),
    );
  const either = AbortSignal.any([signal, late]);
  either.addEventListener('abort', give, { once: true });
  try {
    return { pid, readyMatch: await readyMatch.promise, tail, lastError, stop, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  } finally {
    either.removeEventListener('abort', give);
  }
}

async function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}

const lastLines = (text: string): string => text.trim().split('\n').slice(-4).join(' | ').slice(-600);
