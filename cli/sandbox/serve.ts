import { randomUUID } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { z } from 'zod';
import { pathWith } from '../../activities/environments/environment.ts';
import type { SandboxBackend } from '../../activities/sandbox/backend.ts';
import type { Mount } from '../../activities/sandbox/bubblewrap.ts';
import { createSandbox } from '../../activities/sandbox/create-sandbox.ts';
import { destroySandbox } from '../../activities/sandbox/destroy-sandbox.ts';
import { handOver, type Sandbox } from '../../activities/sandbox/empty-sandbox.ts';
import { hostWork, SandboxError } from '../../activities/sandbox/errors.ts';
import { proxyVariables, type Network } from '../../activities/sandbox/network.ts';
import { placeTask } from '../../activities/sandbox/place-task.ts';
import { baseEnvironment } from '../../activities/sandbox/sandbox-paths.ts';
import { startsOfHost } from '../../activities/sandbox/starts.ts';
import { loadTask } from '../../activities/tasks/load-task.ts';
import { TrialgateError } from '../../core/errors.ts';
import { hasImages, type SandboxSetting } from '../../core/run-config/sandbox.ts';
import type { FolderTask } from '../../core/task.ts';

const absolute = z.string().refine(isAbsolute, 'an absolute path');
const network = z.union([
  z.enum(['none', 'host']),
  z.strictObject({ gateway: z.url().optional(), hosts: z.array(z.string()).optional() }),
]);

const request = z.discriminatedUnion('do', [
  z.strictObject({
    do: z.literal('start'),
    /** The folder of a task in Harbor's format, whose environment the sandbox has. */
    task: absolute,
    /** Folders that the sandbox has besides its own, empty and writable, under these paths. */
    folders: z.array(absolute).default([]),
    /** Folders of this host that the sandbox reads, under the same paths. */
    readable: z.array(absolute).default([]),
    /** The folders that come first in its PATH. */
    path: z.array(absolute).default([]),
  }),
  z.strictObject({
    do: z.literal('run'),
    sandbox: z.string(),
    argv: z.array(z.string()).min(1),
    cwd: absolute.optional(),
    env: z.record(z.string(), z.string()).default({}),
    /** A file of this host that becomes the standard input. */
    stdin: absolute.optional(),
    seconds: z.number().positive().max(1_000_000),
    /** The most bytes of stdout and stderr together. */
    output_bytes: z
      .int()
      .positive()
      .max(2 ** 28)
      .default(4 * 2 ** 20),
    network: network.default('none'),
  }),
  /** Cancels a `start` or a `run`. */
  z.strictObject({ do: z.literal('cancel'), request: z.int() }),
  z.strictObject({ do: z.literal('stop'), sandbox: z.string() }),
]);
const numbered = z.looseObject({ id: z.int() });

type Start = Extract<z.output<typeof request>, { do: 'start' }>;
type Run = Extract<z.output<typeof request>, { do: 'run' }>;
type Served = { sandbox: Sandbox; backend: SandboxBackend; task: FolderTask; mounts: Mount[]; path: string[] };

type Options = {
  setting: SandboxSetting;
  /** The deployment's folder. */
  home: string;
  signal: AbortSignal;
  /** Is told what takes long, for people. */
  report: (line: string) => void;
};

const ATTEMPT = 1;
const PROCESSES = 1024;

/**
 * Serves sandboxes to a program of another language: each line of `input` is a request, and `answer` gets a line for each, in the order in
 * which they end. docs/sandboxes.md has the requests. At the end of the input, or when the signal aborts, all sandboxes are removed.
 * Rejects with the signal's reason when it aborts.
 */
export async function serveSandboxes(input: Readable, answer: (line: string) => void, options: Options): Promise<void> {
  const ending = new AbortController();
  const server = new SandboxServer({ ...options, signal: AbortSignal.any([options.signal, ending.signal]) });
  const lines = createInterface({ input, signal: options.signal });
  const underWay = new Set<Promise<void>>();
  const answerTo = async (line: string): Promise<void> => answer(await server.answer(line));
  try {
    for await (const line of lines) {
      if (line.trim() === '') continue;
      const answering = answerTo(line);
      underWay.add(answering);
      void answering.finally(() => underWay.delete(answering));
    }
  } finally {
    ending.abort(new Error('the sandboxes are no longer served'));
    await Promise.allSettled(underWay);
    await server.close();
  }
  options.signal.throwIfAborted();
}

class SandboxServer {
  readonly #options: Options;
  readonly #sandboxes = new Map<string, Served>();
  readonly #cancels = new Map<number, AbortController>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** Never rejects: an error is an answer too. */
  async answer(line: string): Promise<string> {
    let id: number | null = null;
    try {
      const { id: number, ...asked } = numbered.parse(JSON.parse(line));
      id = number;
      return JSON.stringify({ id, result: await this.#do(number, request.parse(asked)) });
    } catch (error) {
      return JSON.stringify({ id, error: described(error) });
    }
  }

  async #do(id: number, asked: z.output<typeof request>): Promise<object> {
    switch (asked.do) {
      case 'start':
        return this.#cancellable(id, (signal) => this.#start(asked, signal));
      case 'run':
        return this.#cancellable(id, (signal) => this.#run(asked, signal));
      case 'cancel':
        this.#cancels.get(asked.request)?.abort(new Error('cancelled'));
        return {};
      case 'stop':
        return this.#stop(asked.sandbox);
    }
  }

  async #cancellable<T>(id: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const stop = new AbortController();
    this.#cancels.set(id, stop);
    try {
      return await work(AbortSignal.any([stop.signal, this.#options.signal]));
    } finally {
      this.#cancels.delete(id);
    }
  }

  async #start({ task: folder, folders, readable, path }: Start, signal: AbortSignal): Promise<object> {
    const { setting, home, report } = this.#options;
    const task = await loadTask(folder, { hasImages: hasImages(setting) });
    const place = await placeTask(task, { sandbox: setting, verifier_sandbox: null }, { home, signal, report });
    const { backend, image } = place;
    if ((folders.length > 0 || readable.length > 0) && !backend.capabilities.mounts)
      throw new TrialgateError(
        'missing_prerequisite',
        `folders: ${backend.kind} gives sandboxes no paths of their own here: ${backend.statement}`,
      );
    const trialId = `served-${randomUUID().slice(0, 12)}`;
    const key = { home, trialId, attempt: ATTEMPT, backend };
    const sandbox = await startsOfHost().run({
      what: `sandbox ${trialId}`,
      signal,
      start: (within) => createSandbox({ ...key, task, image, signal: within }),
      undo: () => destroySandbox(key),
    });
    const own = await hostWork(`sandbox ${trialId}`, () => ownFolders(sandbox, folders)).catch(
      async (error: unknown) => {
        await destroySandbox(key);
        throw error;
      },
    );
    const mounts = [...sandbox.mounts, ...own, ...readable.map((host) => ({ host, inside: host, writable: false }))];
    this.#sandboxes.set(trialId, { sandbox, backend, task, mounts, path });
    return { sandbox: trialId, cwd: backend.pathsOf(sandbox).work };
  }

  async #run(
    { sandbox: name, argv, cwd, env, stdin, seconds, output_bytes: outputBytes, network: asked }: Run,
    signal: AbortSignal,
  ): Promise<object> {
    const { sandbox, backend, task, mounts, path } = this.#find(name);
    const paths = backend.pathsOf(sandbox);
    const reached = networkOf(asked, sandbox.root);
    const base = { ...baseEnvironment(backend.pythonOf(sandbox), paths), ...sandbox.image?.env };
    const { cpus, memoryMb, storageMb } = task.environment;
    const ended = await backend.run(sandbox, {
      argv,
      cwd: cwd ?? paths.work,
      env: {
        ...base,
        PATH: pathWith({ path }, base.PATH),
        ...proxyVariables(reached),
        ...task.environment.env,
        ...env,
      },
      limits: { seconds, cpus, memoryMb, storageMb, outputBytes, processes: PROCESSES },
      mounts,
      network: reached,
      ...(stdin === undefined ? {} : { stdin }),
      signal,
    });
    return {
      reason: ended.reason,
      exit_code: ended.exitCode,
      signal: ended.signal,
      stdout: ended.stdout,
      stderr: ended.stderr,
      gateway_failures: ended.gatewayFailures,
      seconds: ended.seconds,
    };
  }

  async #stop(name: string): Promise<object> {
    const { backend } = this.#find(name);
    await destroySandbox({ home: this.#options.home, trialId: name, attempt: ATTEMPT, backend });
    this.#sandboxes.delete(name);
    return {};
  }

  #find(name: string): Served {
    const found = this.#sandboxes.get(name);
    if (found === undefined) throw new TrialgateError('not_found', `there is no sandbox ${JSON.stringify(name)}`);
    return found;
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#sandboxes.keys()].map((name) => this.#stop(name)));
  }
}

/** Makes the folders that a sandbox has besides its own, and gives them to its user. */
async function ownFolders({ root, uid }: Sandbox, folders: readonly string[]): Promise<Mount[]> {
  const mounts = folders.map((inside, index) => ({ host: join(root, `folder-${index}`), inside, writable: true }));
  for (const { host } of mounts) {
    await mkdir(host);
    await handOver(host, uid);
  }
  return mounts;
}

function networkOf(asked: z.output<typeof network>, folder: string): Network {
  if (asked === 'none' || asked === 'host') return { kind: asked };
  const { gateway, hosts } = asked;
  if (gateway !== undefined)
    return { kind: 'gateway', url: gateway, folder, ...(hosts === undefined ? {} : { hosts }) };
  return hosts === undefined ? { kind: 'none' } : { kind: 'hosts', hosts, folder };
}

function described(error: unknown): { code: string; message: string } {
  if (error instanceof SandboxError) return { code: 'sandbox_failed', message: error.message };
  if (error instanceof TrialgateError) return { code: error.code, message: error.message };
  if (error instanceof z.ZodError) return { code: 'bad_input', message: z.prettifyError(error) };
  if (error instanceof SyntaxError) return { code: 'bad_input', message: `the line is no JSON: ${error.message}` };
  return { code: 'failed', message: error instanceof Error ? error.message : String(error) };
}
