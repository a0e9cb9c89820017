import { createHash, randomUUID } from 'node:crypto';
import { chmod, mkdir } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import { mountsOf, type Environment } from '../environments/environment.ts';
import { pythonEnvironment } from '../environments/python.ts';
import { copyFiles } from '../sandbox/copy-files.ts';
import { emptySandbox, handOver, type Sandbox } from '../sandbox/create-sandbox.ts';
import { removeNamed } from '../sandbox/destroy-sandbox.ts';
import { errorLine } from '../sandbox/error-line.ts';
import { hostWork, VerifierError } from '../sandbox/errors.ts';
import { isolation, type Isolation } from '../sandbox/isolation.ts';
import { launch, remove } from '../sandbox/launcher.ts';
import { listenIn } from '../sandbox/listen-in.ts';
import type { ProcessResult } from '../sandbox/run-process.ts';
import { baseEnvironment, ownMounts, pathsOf } from '../sandbox/sandbox-paths.ts';
import { passable, sandboxUser } from '../sandbox/sandbox-user.ts';
import { shortName, type FoundFunction } from './find-function.ts';

/** What a reward function judges. */
export type GradeRequest = {
  row: unknown;
  /** The messages of the agent's conversation. */
  transcript: unknown[];
  /** What the agent wrote to `result.json`; null when it wrote nothing. */
  result: unknown;
  /** The folder of the files that the agent left; null gives the function an empty one. */
  files: string | null;
};

const replyLine = z.union([
  z.object({ ready: z.literal(true) }),
  z.object({ fault: z.string() }),
  z.object({
    id: z.number(),
    value: z.union([z.number(), z.record(z.string(), z.number())]).optional(),
    error: z.string().optional(),
    /** True when the error came from something that the function asked over the network. */
    outside: z.boolean().default(false),
    stdout: z.string(),
    stderr: z.string(),
  }),
]);

/** What a reward function returned, or why it did not, and what it printed. */
export type Grade = { value: number | Record<string, number> } & Printed;
type Printed = { stdout: string; stderr: string };

/** Thrown when a reward function raises, hangs, or returns no number. */
export class GradeError extends VerifierError {
  readonly printed: Printed;
  /** True when the network failed, so that the work cannot be the cause. */
  readonly isOutside: boolean;
  constructor(message: string, printed: Printed, isOutside = false) {
    super(message);
    this.name = 'GradeError';
    this.printed = printed;
    this.isOutside = isOutside;
  }
}

const SCRIPT = fileURLToPath(new URL('./grader.py', import.meta.url));
const INSIDE = { script: '/run/trialgate/grader.py', socket: '/run/trialgate/grader.sock', folder: '/reward' };
const WORK_LIMITS = { bytes: 256 * 2 ** 20, entries: 10_000 };
/** The time that a module has for its import. */
const START_MS = 300_000;
/** A grader has no limit of time, and `launch` needs one. A timer of Node waits 24 days at most. */
const LONGEST_SECONDS = 20 * 24 * 3600;

type Pending = { resolve: (grade: Grade) => void; reject: (error: Error) => void };

/**
 * The process that runs one reward function for many trials (`grader.py`), in a sandbox of its own. It starts with the first request, and ends
 * when it is closed.
 */
export class Grader {
  readonly #found: FoundFunction;
  readonly #home: string;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  #started: Promise<Started> | null = null;
  /** Ends the process that was started last. */
  #stop = new AbortController();

  constructor(found: FoundFunction, home: string) {
    this.#found = found;
    this.#home = home;
  }

  /** The number of requests without an answer. */
  get load(): number {
    return this.#pending.size;
  }

  /**
   * Calls the function.
   * @throws GradeError with the function's own error; VerifierError when it cannot be imported; TrialgateError `bad_input` when its
   *   packages cannot be installed; SandboxError when the host failed; the signal's reason on abort
   */
  async grade(request: GradeRequest, signal: AbortSignal): Promise<Grade> {
    signal.throwIfAborted();
    const { socket, sandbox, paths } = await (this.#started ??= this.#startAgain());
    const id = ++this.#lastId;
    const copy = join(sandbox.work, String(id));
    try {
      await this.#copy(request.files, copy, sandbox, signal);
      const files = join(paths.work, String(id));
      const answer = new Promise<Grade>((resolve, reject) => this.#pending.set(id, { resolve, reject }));
      const abort = () => this.#settle(id)?.reject(abortReason(signal));
      signal.addEventListener('abort', abort, { once: true });
      socket.write(`${stringifyExact({ id, ...request, files })}\n`);
      return await answer.finally(() => signal.removeEventListener('abort', abort));
    } finally {
      await remove(copy).catch(() => {});
    }
  }

  /** Ends the process. */
  async close(): Promise<void> {
    const starting = this.#started;
    this.#stop.abort();
    const started = await starting?.catch(() => null);
    await started?.ended;
  }

  async #copy(from: string | null, to: string, sandbox: Sandbox, signal: AbortSignal): Promise<void> {
    await hostWork("copying the agent's files", async () => {
      if (from === null) await mkdir(to);
      else
        await copyFiles(from, to, WORK_LIMITS, { signal }).catch((error: unknown) => {
          if (error instanceof RangeError)
            throw new VerifierError(`the agent's work cannot be judged: ${error.message}`, 'too_much');
          throw error;
        });
      await handOver(to, sandbox.uid);
    });
  }

  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  /** Starts the process. The next request tries again where this fails. */
  async #startAgain(): Promise<Started> {
    try {
      return await this.#start();
    } catch (error) {
      this.#started = null;
      throw error;
    }
  }

  async #start(): Promise<Started> {
    const found = this.#found;
    const stop = (this.#stop = new AbortController());
    const here = await isolation();
    const environment =
      found.python === undefined
        ? null
        : await pythonEnvironment(found.python, { home: this.#home, signal: stop.signal });
    const digest = createHash('sha256').update(JSON.stringify(found)).digest('hex').slice(0, 12);
    const sandbox = await hostWork('making the sandbox of a reward function', () =>
      emptySandbox(this.#home, `reward-${digest}-${randomUUID().slice(0, 8)}.1`),
    );
    const [ready, arrived] = settled<Socket>();
    const server = createServer((socket) => this.#converse(socket, ready));
    server.maxConnections = 1;
    const stopListening = await listenIn(server, sandbox.root, 'grader.sock');
    await chmod(join(sandbox.root, 'grader.sock'), 0o666);
    await handOver(sandbox.root, sandbox.uid);
    const paths = pathsOf(sandbox, here);
    const ended = this.#runToEnd({ sandbox, here, environment, signal: stop.signal }).then(async (why) => {
      await stopListening();
      await removeNamed(this.#home, sandbox.name);
      return this.#fail(why, ready);
    });
    const timer = setTimeout(() => {
      ready.reject(new VerifierError(`reward ${shortName(found)}: its import takes longer than ${START_MS / 1000} s`));
      stop.abort();
    }, START_MS);
    try {
      return { socket: await arrived, sandbox, paths, ended };
    } catch (error) {
      stop.abort();
      await ended;
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Runs the process, and returns why it ended. */
  async #runToEnd(place: Place): Promise<Error> {
    try {
      return this.#endError(await this.#launch(place));
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  async #launch({ sandbox, here, environment, signal }: Place): Promise<ProcessResult> {
    const found = this.#found;
    const paths = pathsOf(sandbox, here);
    const isWrapped = here.kind === 'bubblewrap';
    const folder = dirname(found.file);
    const uid = sandboxUser(here, sandbox);
    if (!isWrapped && uid !== null)
      for (const each of [SCRIPT, found.file, ...(environment?.folders ?? [])])
        if (!passable(each))
          throw new TrialgateError(
            'bad_input',
            `reward ${shortName(found)}: the sandbox's user cannot read ${each}: install bubblewrap`,
          );
    const settings = {
      file: isWrapped ? join(INSIDE.folder, found.file.slice(folder.length + 1)) : found.file,
      name: found.name,
      options: found.options,
      seconds: found.seconds,
      processes: found.processes,
      network: found.network === 'host',
      socket: isWrapped ? INSIDE.socket : join(sandbox.root, 'grader.sock'),
    };
    const base = baseEnvironment(here.python, paths);
    const python = environment?.python ?? here.python.executable;
    return launch({
      argv: [python, '-B', isWrapped ? INSIDE.script : SCRIPT, JSON.stringify(settings)],
      cwd: paths.work,
      env: {
        ...base,
        PATH: [...(environment?.path ?? []), base.PATH].join(':'),
        ...Object.fromEntries(Object.entries(found.env).map(([name, value]) => [name, ownVariable(value, found)])),
      },
      limits: {
        seconds: LONGEST_SECONDS,
        memoryMb: found.memory_mb,
        outputBytes: 2 ** 30,
        processes: 64 + 16 * found.processes,
        cpus: found.processes,
        storageMb: 10_240,
      },
      isolation: here,
      uid,
      mounts: [
        ...ownMounts(sandbox, paths),
        { host: SCRIPT, inside: INSIDE.script, writable: false },
        { host: join(sandbox.root, 'grader.sock'), inside: INSIDE.socket, writable: false },
        { host: folder, inside: INSIDE.folder, writable: false },
        ...(environment === null ? [] : mountsOf(environment)),
      ],
      network: found.network === 'host' ? { kind: 'host' } : { kind: 'none' },
      marker: sandbox.marker,
      root: sandbox.root,
      signal,
    });
  }

  /** Reads the process's answers. Everything that it sends is checked, because it runs a program of the user. */
  #converse(socket: Socket, ready: Settle<Socket>): void {
    socket.on('error', () => {});
    const lines = createInterface({ input: socket, crlfDelay: Infinity });
    lines.on('line', (line) => {
      const reply = replyLine.safeParse(parseJson(line));
      if (!reply.success) return;
      if ('ready' in reply.data) ready.resolve(socket);
      else if ('fault' in reply.data)
        ready.reject(new VerifierError(`reward ${shortName(this.#found)} cannot be imported: ${reply.data.fault}`));
      else this.#answer(reply.data);
    });
  }

  #answer({ id, value, error, outside, stdout, stderr }: Extract<z.output<typeof replyLine>, { id: number }>): void {
    const pending = this.#settle(id);
    const printed = { stdout, stderr };
    if (value !== undefined) pending?.resolve({ value, ...printed });
    else pending?.reject(new GradeError(`reward ${shortName(this.#found)}: ${error ?? 'no value'}`, printed, outside));
  }

  #endError({ reason, exitCode, signal, stderr }: ProcessResult): Error {
    const how = reason === 'exited' ? (signal ?? `exit code ${exitCode}`) : reason;
    return new VerifierError(
      `reward ${shortName(this.#found)}: its process ended (${how})${stderr ? `: ${errorLine(stderr)}` : ''}`,
      'killed',
    );
  }

  /** Ends all requests with an error. The next one starts a new process. */
  #fail(error: Error, ready: Settle<Socket>): void {
    this.#started = null;
    ready.reject(error);
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(error);
  }
}

type Place = { sandbox: Sandbox; here: Isolation; environment: Environment | null; signal: AbortSignal };
type Started = { socket: Socket; sandbox: Sandbox; paths: { work: string }; ended: Promise<void> };
type Settle<T> = { resolve: (value: T) => void; reject: (error: Error) => void };

/** Returns a promise with its own functions. A rejection that nobody waits for is no error. */
function settled<T>(): [Settle<T>, Promise<T>] {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  promise.catch(() => {});
  return [{ resolve, reject }, promise];
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

const abortReason = (signal: AbortSignal): Error =>
  signal.reason instanceof Error ? signal.reason : new Error('the call was cancelled');

/** `$NAME` is the worker's own variable. */
function ownVariable(value: string, found: FoundFunction): string {
  const name = /^\$([A-Za-z_]\w*)$/.exec(value)?.[1];
  if (name === undefined) return value;
  const own = process.env[name];
  if (own !== undefined) return own;
  throw new TrialgateError(
    'bad_input',
    `reward ${shortName(found)}: env: neither the worker nor this command has the variable ${name}: set it, then \`npx trialgate down\` and \`npx trialgate up\``,
  );
}
