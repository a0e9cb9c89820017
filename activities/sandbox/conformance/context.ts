import { TrialgateError } from '../../../core/errors.ts';
import type { Command, Image, SandboxBackend } from '../backend.ts';
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
  /** Starts an empty sandbox, which the suite removes at the end of the check. */
  start: (name?: string) => Promise<Sandbox>;
  /** Runs a bash script in a sandbox. */
  shell: (sandbox: Sandbox, script: string, options?: Partial<Command>) => Promise<ProcessResult>;
};

/** Generous with time: only a program that is not ended reaches it. */
export const LIMITS = { seconds: 120, memoryMb: 512, outputBytes: 2 ** 20, processes: 64, cpus: 1, storageMb: 256 };

/** Makes the context of one check. Disposal removes the check's sandboxes. */
export function openContext(
  backend: SandboxBackend,
  { home, image, signal }: { home: string; image: Image | null; signal: AbortSignal },
): Context & AsyncDisposable {
  const names = new Set<string>();
  return {
    backend,
    home,
    signal,
    start: async (name = `check-${names.size + 1}.1`) => {
      names.add(name);
      const sandbox = await backend.start({ home, name, image });
      await backend.copyIn(sandbox, signal);
      return sandbox;
    },
    shell: (sandbox, script, options = {}) => {
      const paths = backend.pathsOf(sandbox);
      return backend.run(sandbox, {
        argv: ['bash', '-c', script],
        cwd: paths.work,
        env: { ...baseEnvironment(backend.pythonOf(sandbox), paths), ...sandbox.image?.env },
        limits: LIMITS,
        mounts: [],
        network: { kind: 'none' },
        signal,
        ...options,
      });
    },
    [Symbol.asyncDispose]: async () => {
      for (const name of names) await backend.destroy(home, name);
    },
  };
}
