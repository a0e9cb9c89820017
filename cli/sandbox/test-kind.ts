import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import type { SandboxBackend } from '../../activities/sandbox/backend.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';
import { requirePrograms } from '../../activities/sandbox/conformance/require-programs.ts';
import { runChecks, type CheckResult } from '../../activities/sandbox/conformance/run-checks.ts';
import { TrialgateError } from '../../core/errors.ts';
import {
  imageWithout,
  isSandboxKind,
  SANDBOX_KINDS,
  type SandboxKind,
  type SandboxSetting,
} from '../../core/run-config/sandbox.ts';
import { readRunFile, readSettings } from '../run/read-run-file.ts';

export type KindReport = { kind: string; passed: number; failed: number; skipped: number; checks: CheckResult[] };

type Options = {
  /** A run file. Its `sandbox` gives the settings of the kind, and the kind itself if none is named. */
  run?: string;
  /** A runtime of `container`, where no run file gives it. */
  runtime?: string;
  large?: boolean;
};

/** A kind of sandbox, and the name of the image that its sandboxes have. */
type Opened = { backend: SandboxBackend; image: string | null };

/**
 * Tries each sentence about sandboxes on a kind, and prints each result as it comes.
 * @throws TrialgateError `bad_input` for an unknown kind and for sandboxes without `bash` or `python3`, `missing_prerequisite` when it does not work here
 */
export async function testKind(
  named: string | undefined,
  { large = false, ...options }: Options,
  signal: AbortSignal,
  print: (line: string) => void,
): Promise<KindReport> {
  const { backend, image: name } = await openNamed(named, options, signal);
  print(backend.statement);
  await using folder = await temporaryFolder();
  const preparing = { home: folder.path, signal, report: print };
  const image = name === null ? null : await backend.prepare({ name }, preparing);
  signal.throwIfAborted();
  await requirePrograms(backend, { home: folder.path, image, signal });
  const onResult = ({ outcome, sentence, reason, seconds }: CheckResult): void =>
    print(
      `${outcome.padEnd(7)}  ${seconds.toFixed(1).padStart(5)} s  ${sentence}${reason === null ? '' : `: ${reason}`}`,
    );
  const checks = await runChecks(backend, { signal, large, image, onResult });
  const count = (...outcomes: CheckResult['outcome'][]): number =>
    checks.filter(({ outcome }) => outcomes.includes(outcome)).length;
  const report = {
    kind: backend.kind,
    passed: count('passed'),
    failed: count('failed', 'error'),
    skipped: count('skipped'),
    checks,
  };
  print(`${report.passed} passed, ${report.failed} failed, ${report.skipped} skipped`);
  return report;
}

async function openNamed(
  named: string | undefined,
  { run, runtime }: Pick<Options, 'run' | 'runtime'>,
  signal: AbortSignal,
): Promise<Opened> {
  if (named !== undefined && !isSandboxKind(named)) {
    if (runtime !== undefined) throw noRuntimes(named);
    return { backend: await openModule(named, run), image: null };
  }
  if (run === undefined) return { backend: await openBackend(settingOf(named, runtime), signal), image: null };
  if (runtime !== undefined)
    throw new TrialgateError('bad_input', '--runtime: with --run it is `sandbox.runtime` of the run file: remove one');
  // A file without `iterations` is one for `train --iterations` and for `evaluate`.
  const { sandbox } = await readRunFile(run, { iterations: 0 });
  if (named !== undefined && sandbox.kind !== named) throw otherKind(run, sandbox.kind, named);
  return { backend: await openBackend(sandbox, signal), image: imageWithout(sandbox) };
}

function settingOf(kind: SandboxKind | undefined, runtime: string | undefined): SandboxSetting {
  if (kind === undefined)
    throw new TrialgateError(
      'bad_input',
      'which kind of sandbox? Name one of `npx trialgate sandbox list`, a module of your own, or a run file with --run',
    );
  if (runtime === undefined) return { kind };
  if (kind !== 'container') throw noRuntimes(kind);
  return { kind, runtime };
}

const noRuntimes = (kind: string): TrialgateError =>
  new TrialgateError('bad_input', `--runtime: only \`container\` has runtimes, and the kind is ${kind}`);

const otherKind = (run: string, found: string, expected: string): TrialgateError =>
  new TrialgateError(
    'bad_input',
    `--run: the sandbox of ${run} is ${found}, and the kind to test is ${expected}: name a run file whose \`sandbox\` is ${expected}, or test ${found}`,
  );

/** The `sandbox` of a run file for a kind of one's own, whose settings only its module knows. */
const ownSetting = z.object({
  sandbox: z
    .union([z.string().transform((kind) => ({ kind })), z.looseObject({ kind: z.string() })])
    .default({ kind: 'bubblewrap' }),
});

async function ownSettingOf(run: string): Promise<{ kind: string }> {
  const parsed = ownSetting.safeParse(await readSettings(run));
  if (parsed.success) return parsed.data.sandbox;
  throw new TrialgateError('bad_input', `${run}: sandbox: expected the name of a kind, or \`kind\` with its settings`);
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

async function openModule(named: string, run: string | undefined): Promise<SandboxBackend> {
  if (!named.includes('/') && !/\.[mc]?[jt]s$/.test(named))
    throw new TrialgateError(
      'bad_input',
      `there is no kind of sandbox ${JSON.stringify(named)}: it is one of ${SANDBOX_KINDS.join(', ')}, or the path of a module of your own`,
    );
  const setting = run === undefined ? undefined : await ownSettingOf(run);
  const file = resolve(named);
  const module: unknown = await import(pathToFileURL(file).href).catch((cause: unknown) => {
    throw new TrialgateError('bad_input', `${file}: it cannot be imported: ${messageOf(cause)}`, { cause });
  });
  const make = typeof module === 'object' && module !== null && 'default' in module ? module.default : undefined;
  if (typeof make !== 'function')
    throw new TrialgateError(
      'bad_input',
      `${file}: its default export is no function: export one that returns a SandboxBackend (activities/sandbox/backend.ts)`,
    );
  let backend: unknown;
  try {
    backend = await make(setting);
  } catch (cause) {
    const code = cause instanceof TrialgateError ? cause.code : 'bad_input';
    const given =
      run === undefined ? '. It was given no settings: they are `sandbox` of a run file, which --run names' : '';
    throw new TrialgateError(code, `${file}: its function failed: ${messageOf(cause)}${given}`, { cause });
  }
  if (!isBackend(backend))
    throw new TrialgateError('bad_input', `${file}: its function returns no SandboxBackend: ${missingOf(backend)}`);
  if (run !== undefined && setting?.kind !== backend.kind) throw otherKind(run, setting?.kind ?? '', backend.kind);
  return backend;
}

async function temporaryFolder(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), 'trialgate-check-'));
  // Sandboxes have users of their own.
  await chmod(path, 0o755);
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const METHODS = [
  ...(['pathsOf', 'pythonOf', 'prepare', 'start', 'copyIn', 'explain', 'run', 'copyOut', 'destroy', 'find'] as const),
];

const isBackend = (value: unknown): value is SandboxBackend => missingOf(value) === null;

function missingOf(value: unknown): string | null {
  if (typeof value !== 'object' || value === null) return 'it is no object';
  // The methods of a class belong to its prototype, so its own members are not all.
  for (const name of ['kind', 'capabilities', 'statement', 'host']) if (!(name in value)) return `it has no ${name}`;
  const missing = METHODS.find((name) => typeof Reflect.get(value, name) !== 'function');
  return missing === undefined ? null : `it has no function ${missing}`;
}
