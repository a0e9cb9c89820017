import { createHash, randomUUID } from 'node:crypto';
import { statSync } from 'node:fs';
import { chmod, mkdir } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { TrialgateError } from '../../core/errors.ts';
import { stringifyExact } from '../../core/exact-json.ts';
import type { Message } from '../../core/prompt-messages.ts';
import { mountsOf, pathWith, type Environment } from '../environments/environment.ts';
import { pythonEnvironment } from '../environments/python.ts';
import { copyFiles } from '../sandbox/copy-files.ts';
import type { Sandbox } from '../sandbox/empty-sandbox.ts';
import { errorLine } from '../sandbox/error-line.ts';
import { hostWork, VerifierError } from '../sandbox/errors.ts';
import { isolation, type Isolation } from '../sandbox/isolation.ts';
import { launch, remove } from '../sandbox/launcher.ts';
import { LONGEST_SECONDS } from '../sandbox/limits.ts';
import type { ProcessResult } from '../sandbox/run-process.ts';
import { baseEnvironment, ownMounts, pathsOf } from '../sandbox/sandbox-paths.ts';
import { passable, sandboxUser } from '../sandbox/sandbox-user.ts';
import { openServerSandbox } from '../sandbox/server-sandbox.ts';
import { shortName, type FoundFunction } from './find-function.ts';

/** The work that a reward function judges. */
export type GradeRequest = {
  row: unknown;
  /** The row's prompt: a text, or messages. */
  prompt: string | Message[];
  /** The messages of the agent's conversation. */
  transcript: unknown[];
  /** The ids that the model sampled in the conversation. */
  completion_ids: number[];
  /** The iterations that the weights were trained for, and those of the whole run. */
  training: { global_step: number; max_steps: number };
  /** The content of the agent's `result.json`; null when there is none. */
  result: unknown;
  /** The folder of the files that the agent left; null gives the function an empty one. */
  files: string | null;
};

const readyLine = z.object({ ready: z.literal(true), async: z.boolean() });
const faultLine = z.object({ fault: z.string() });
const gradeLine = z.object({
  id: z.number(),
  value: z.union([z.number(), z.record(z.string(), z.number()), z.null()]).optional(),
  error: z.string().optional(),
  /** True when the error came from something that the function asked over the network. */
  outside: z.boolean().default(false),
  stdout: z.string(),
  stderr: z.string(),
});
const replyLine = z.union([readyLine, faultLine, gradeLine]);

/** The value that a reward function returned, and its output. Null: one of TRL's functions gave this row no reward. */
export type Grade = { value: number | Record<string, number> | null } & Printed;
type Printed = { stdout: string; stderr: string };

/** Thrown when a reward function raises, hangs, or returns no number. */
export class GradeError extends VerifierError {
  readonly printed: Printed;
  /** True when the network failed. Then the work need not be the cause. */
  readonly isOutside: boolean;
  constructor(message: string, printed: Printed, isOutside = false) {
    super(message);
    this.name = 'GradeError';
    this.printed = printed;
    this.isOutside = isOutside;
  }
}

const SCRIPT = fileURLToPath(new URL('./grader.py', import.meta.url));
const SOCKET = 'grader.sock';
const INBOX = 'inbox';
/** The folder that calls without files get. */
const EMPTY = 'empty';
const INSIDE = {
  script: '/run/trialgate/grader.py',
  socket: '/run/trialgate/grader.sock',
  folder: '/reward',
  inbox: '/inbox',
};
const WORK_LIMITS = { bytes: 256 * 2 ** 20, entries: 10_000 };
/** The time that a module has for its import. */
const START_MS = 300_000;
/** `grader.py` ends a call at its own limit. This is the time after which it does not work itself. */
const GRACE_MS = 15_000;
/** The calls that a process answers at the same time if the function is `async`, as in `grader.py`. */
const ASYNC_CALLS = 64;

type Pending = { resolve: (grade: Grade) => void; reject: (error: Error) => void };
type Place = { sandbox: Sandbox; inbox: string; here: Isolation; environment: Environment | null; signal: AbortSignal };
type Started = {
  socket: Socket;
  sandbox: Sandbox;
  /** The worker's own folder, which the function can only read. No program in the sandbox can put a link into the way of a copy. */
  inbox: string;
  inboxInside: string;
  slots: Slots;
  stop: () => void;
  isOver: () => boolean;
  ended: Promise<void>;
};

/**
 * Runs one reward function for many trials, in processes (`grader.py`) that have a sandbox of their own. They start with the first request,
 * and end when the grader is closed.
 */
export class Grader {
  readonly #found: FoundFunction;
  readonly #home: string;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  #started: Promise<Started> | null = null;
  #stop = new AbortController();

  constructor(found: FoundFunction, home: string) {
    this.#found = found;
    this.#home = home;
  }

  /**
   * Calls the function.
   * @throws GradeError with the function's own error; VerifierError when it cannot be imported, or (`killed`) when its processes ended;
   *   TrialgateError `bad_input` when its packages cannot be installed; SandboxError when the host failed; the signal's reason on abort
   */
  async grade(request: GradeRequest, signal: AbortSignal): Promise<Grade> {
    signal.throwIfAborted();
    const started = await (this.#started ??= this.#startAgain());
    // A copy of the agent's files exists only while a process can take the call.
    await started.slots.take(signal);
    try {
      return await this.#ask(started, request, signal);
    } finally {
      started.slots.release();
    }
  }

  /** Ends the processes. */
  async close(): Promise<void> {
    const starting = this.#started;
    this.#stop.abort();
    const started = await starting?.catch(() => null);
    await started?.ended;
  }

  async #ask(started: Started, request: GradeRequest, signal: AbortSignal): Promise<Grade> {
    const id = ++this.#lastId;
    const name = request.files === null ? EMPTY : String(id);
    const copy = join(started.inbox, name);
    const { promise: answer, ...pending } = Promise.withResolvers<Grade>();
    answer.catch(() => {});
    // The processes may end while the files are copied, so the call is noted first.
    this.#pending.set(id, pending);
    const abort = () => this.#settle(id)?.reject(abortReason(signal));
    signal.addEventListener('abort', abort, { once: true });
    const deadline = setTimeout(
      () => {
        this.#settle(id)?.reject(
          new GradeError(`reward ${shortName(this.#found)}: the function did not end`, NOTHING_PRINTED),
        );
        started.stop();
      },
      this.#found.seconds * 1000 + GRACE_MS,
    );
    try {
      if (started.isOver()) throw this.#endError(null);
      if (request.files !== null) await this.#copy(request.files, copy, signal);
      started.socket.write(`${stringifyExact({ id, ...request, files: join(started.inboxInside, name) })}\n`);
      return await answer;
    } finally {
      clearTimeout(deadline);
      signal.removeEventListener('abort', abort);
      this.#settle(id);
      if (started.isOver()) await remove(started.sandbox.root).catch(() => {});
      else if (request.files !== null) await remove(copy).catch(() => {});
    }
  }

  async #copy(from: string, to: string, signal: AbortSignal): Promise<void> {
    await hostWork("copying the agent's files", async () => {
      await copyFiles(from, to, WORK_LIMITS, { signal, isReadable: true }).catch((error: unknown) => {
        if (error instanceof RangeError)
          throw new VerifierError(`the agent's work cannot be judged: ${error.message}`, 'too_much');
        throw error;
      });
    });
  }

  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  /** Starts the processes. The next request tries again where this fails. */
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
    const ready = Promise.withResolvers<{ socket: Socket; isAsync: boolean }>();
    ready.promise.catch(() => {});
    const { sandbox, remove: removeSandbox } = await openServerSandbox({
      home: this.#home,
      name: `reward-${digest}-${randomUUID().slice(0, 8)}.1`,
      socket: SOCKET,
      isolation: here,
      prepare: async ({ root }) => {
        await mkdir(join(root, INBOX));
        await mkdir(join(root, INBOX, EMPTY));
        await chmod(join(root, INBOX), 0o711);
        await chmod(join(root, INBOX, EMPTY), 0o755);
      },
      onMessage: (message, socket) => this.#receive(message, socket, ready),
    });
    const inbox = join(sandbox.root, INBOX);
    let isOver = false;
    const end = async (why: Error) => {
      isOver = true;
      await removeSandbox();
      this.#fail(why, ready.reject);
    };
    const ended = this.#runToEnd({ sandbox, inbox, here, environment, signal: stop.signal }).then(end);
    const timer = setTimeout(() => {
      ready.reject(new VerifierError(`reward ${shortName(found)}: its import takes longer than ${START_MS / 1000} s`));
      stop.abort();
    }, START_MS);
    try {
      const { socket, isAsync } = await ready.promise;
      const slots = new Slots(found.processes * (isAsync ? ASYNC_CALLS : 1));
      const inboxInside = here.kind === 'bubblewrap' ? INSIDE.inbox : inbox;
      return { socket, sandbox, inbox, inboxInside, slots, ended, stop: () => stop.abort(), isOver: () => isOver };
    } catch (error) {
      stop.abort();
      await ended;
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Runs the processes, and returns why they ended. */
  async #runToEnd(place: Place): Promise<Error> {
    try {
      return this.#endError(await this.#launch(place));
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  async #launch({ sandbox, inbox, here, environment, signal }: Place): Promise<ProcessResult> {
    const found = this.#found;
    const paths = pathsOf(sandbox, here);
    const isWrapped = here.kind === 'bubblewrap';
    const folder = dirname(found.file);
    const uid = sandboxUser(here, sandbox);
    if (!isWrapped && uid !== null)
      for (const each of [
        SCRIPT,
        found.file,
        ...(environment === null ? [] : [join(environment.folders[0] ?? '', 'bin/python')]),
      ])
        if (!isReadable(each))
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
      // A socket's path has 107 bytes at most. The process starts in `work`.
      socket: isWrapped ? INSIDE.socket : join('..', SOCKET),
    };
    const base = baseEnvironment(here.python.executable, paths);
    const python = environment?.python ?? here.python.executable;
    return launch({
      argv: [python, '-B', isWrapped ? INSIDE.script : SCRIPT, JSON.stringify(settings)],
      cwd: paths.work,
      env: {
        ...base,
        PATH: pathWith(environment, base.PATH),
        ...Object.fromEntries(Object.entries(found.env).map(([name, value]) => [name, ownVariable(value, found)])),
      },
      limits: {
        seconds: LONGEST_SECONDS,
        memoryMb: found.memory_mb,
        outputBytes: 4 * 2 ** 20,
        processes: 64 + 16 * found.processes,
        cpus: found.processes,
        storageMb: 10_240,
      },
      isolation: here,
      uid,
      mounts: [
        ...ownMounts(sandbox, paths),
        { host: inbox, inside: INSIDE.inbox, writable: false },
        { host: SCRIPT, inside: INSIDE.script, writable: false },
        { host: join(sandbox.root, SOCKET), inside: INSIDE.socket, writable: false },
        { host: folder, inside: INSIDE.folder, writable: false },
        ...mountsOf(environment),
      ],
      network: found.network === 'host' ? { kind: 'host' } : { kind: 'none' },
      marker: sandbox.marker,
      root: sandbox.root,
      signal,
    });
  }

  #receive(message: unknown, socket: Socket, ready: PromiseWithResolvers<{ socket: Socket; isAsync: boolean }>): void {
    const { data } = replyLine.safeParse(message);
    if (!data) return;
    if ('ready' in data) ready.resolve({ socket, isAsync: data.async });
    else if ('fault' in data)
      ready.reject(new VerifierError(`reward ${shortName(this.#found)} cannot be imported: ${data.fault}`));
    else this.#answer(data);
  }

  #answer({ id, value, error, outside, stdout, stderr }: z.output<typeof gradeLine>): void {
    const pending = this.#settle(id);
    const printed = { stdout, stderr };
    if (value !== undefined) pending?.resolve({ value, ...printed });
    else pending?.reject(new GradeError(`reward ${shortName(this.#found)}: ${error ?? 'no value'}`, printed, outside));
  }

  #endError(result: ProcessResult | null): Error {
    const how =
      result === null
        ? 'it is over'
        : result.reason === 'exited'
          ? (result.signal ?? `exit code ${result.exitCode}`)
          : result.reason;
    const why = result?.stderr ? `: ${errorLine(result.stderr)}` : '';
    return new VerifierError(`reward ${shortName(this.#found)}: its process ended (${how})${why}`, 'killed');
  }

  /** Ends all requests with an error. The next one starts new processes. */
  #fail(error: Error, notReady: (error: Error) => void): void {
    this.#started = null;
    notReady(error);
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(error);
  }
}

/** Bounds the calls that are under way. */
class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async take(signal: AbortSignal): Promise<void> {
    while (this.#free === 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.push(resolve);
      await Promise.race([promise, sleep(1000)]);
      signal.throwIfAborted();
    }
    this.#free -= 1;
  }

  release(): void {
    this.#free += 1;
    this.#waiting.shift()?.();
  }
}

const NOTHING_PRINTED: Printed = { stdout: '', stderr: '' };

/** Returns true when every user can read the file. */
const isReadable = (file: string): boolean =>
  ((statSync(file, { throwIfNoEntry: false })?.mode ?? 0) & 0o004) !== 0 && passable(dirname(file));

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
