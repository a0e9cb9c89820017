import { TrialgateError } from '../../../core/errors.ts';
import type { Command, Image, SandboxBackend } from '../backend.ts';
import { copyImageFiles } from '../create-sandbox.ts';
import type { Sandbox } from '../empty-sandbox.ts';
import type { ProcessResult } from '../run-process.ts';
import { baseEnvironment } from '../sandbox-paths.ts';

/** A check failed: the kind does not do what `SandboxBackend` says. */
export class Violation extends TrialgateError {
  constructor(message: string) {
    super('bad_input', message);
    this.name = 'Violation';
  }
}

/** @throws Violation when it does not hold */
export function requireThat(holds: boolean, otherwise: string): void {
  if (!holds) throw new Violation(otherwise);
}

export type Context = {
  backend: SandboxBackend;
  /** An empty deployment's folder. */
  home: string;
  signal: AbortSignal;
  /** Starts a sandbox with the files of its image alone. The suite removes it at the end of the check. */
  start: (name?: string) => Promise<Sandbox>;
  /** Returns a command with what every program of the checks gets. Its limit of the disk does not count the files of the image. */
  commandOf: (sandbox: Sandbox, options?: Partial<Command>) => Command;
  /** Runs a bash script in a sandbox. */
  shell: (sandbox: Sandbox, script: string, options?: Partial<Command>) => Promise<ProcessResult>;
};

/** Generous with time: only a program that is not ended reaches it. */
export const LIMITS = { seconds: 120, memoryMb: 512, outputBytes: 2 ** 20, processes: 64, cpus: 1, storageMb: 256 };

/** A task without a repository, with the largest disk that an image's work folder may need. */
const LARGE_IMAGE = { repository: null, environment: { storageMb: 10 * 1024 } };
/** The disk that one file takes beyond its bytes, at most. */
const MOST_BLOCK_BYTES = 4096;

/** Makes the context of one check. Disposal removes the check's sandboxes. */
export function openContext(
  backend: SandboxBackend,
  { home, image, signal }: { home: string; image: Image | null; signal: AbortSignal },
): Context & AsyncDisposable {
  const names = new Set<string>();
  let imageMb = 0;
  const commandOf: Context['commandOf'] = (sandbox, { limits = LIMITS, ...options } = {}) => {
    const paths = backend.pathsOf(sandbox);
    return {
      argv: [],
      cwd: paths.work,
      env: { ...baseEnvironment(backend.pythonOf(sandbox), paths), ...sandbox.image?.env },
      mounts: [],
      network: { kind: 'none' },
      signal,
      ...options,
      limits: { ...limits, storageMb: limits.storageMb + imageMb },
    };
  };
  return {
    backend,
    home,
    signal,
    start: async (name = `check-${names.size + 1}.1`) => {
      names.add(name);
      const sandbox = await backend.start({ home, name, image });
      const copied = await copyImageFiles(LARGE_IMAGE, sandbox, image, signal);
      imageMb = copied === null ? 0 : Math.ceil((copied.bytes + copied.entries * MOST_BLOCK_BYTES) / 2 ** 20);
      await backend.copyIn(sandbox, signal);
      return sandbox;
    },
    commandOf,
    shell: (sandbox, script, options) =>
      backend.run(sandbox, commandOf(sandbox, { argv: ['bash', '-c', script], ...options })),
    [Symbol.asyncDispose]: async () => {
      for (const name of names) await backend.destroy(home, name);
    },
  };
}
