import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { SandboxBackend } from '../../activities/sandbox/backend.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';
import { runChecks, type CheckResult } from '../../activities/sandbox/conformance/run-checks.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isSandboxKind, SANDBOX_KINDS } from '../../core/run-config/sandbox.ts';

export type KindReport = { kind: string; passed: number; failed: number; skipped: number; checks: CheckResult[] };

/**
 * Tries each sentence about sandboxes on a kind, and prints each result as it comes.
 * @throws TrialgateError `bad_input` for an unknown kind, `missing_prerequisite` when it does not work here
 */
export async function testKind(
  named: string,
  { runtime, large = false }: { runtime?: string; large?: boolean },
  signal: AbortSignal,
  print: (line: string) => void,
): Promise<KindReport> {
  const backend = await openNamed(named, runtime);
  print(backend.statement);
  const onResult = ({ outcome, sentence, reason, seconds }: CheckResult): void =>
    print(
      `${outcome.padEnd(7)}  ${seconds.toFixed(1).padStart(5)} s  ${sentence}${reason === null ? '' : `: ${reason}`}`,
    );
  const checks = await runChecks(backend, { signal, large, onResult });
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

async function openNamed(named: string, runtime: string | undefined): Promise<SandboxBackend> {
  if (isSandboxKind(named)) {
    if (runtime !== undefined && named !== 'container')
      throw new TrialgateError('bad_input', `--runtime: only \`container\` has runtimes, and the kind is ${named}`);
    return openBackend(named === 'container' && runtime !== undefined ? { kind: named, runtime } : { kind: named });
  }
  if (!named.includes('/') && !/\.[mc]?[jt]s$/.test(named))
    throw new TrialgateError(
      'bad_input',
      `there is no kind of sandbox ${JSON.stringify(named)}: it is one of ${SANDBOX_KINDS.join(', ')}, or the path of a module of your own`,
    );
  const file = resolve(named);
  const module: unknown = await import(pathToFileURL(file).href).catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TrialgateError('bad_input', `${file}: it cannot be imported: ${why}`, { cause });
  });
  const make = typeof module === 'object' && module !== null && 'default' in module ? module.default : undefined;
  if (typeof make !== 'function')
    throw new TrialgateError(
      'bad_input',
      `${file}: its default export is no function: export one that returns a SandboxBackend (activities/sandbox/backend.ts)`,
    );
  const backend: unknown = await make();
  if (!isBackend(backend))
    throw new TrialgateError('bad_input', `${file}: its function returns no SandboxBackend: ${missingOf(backend)}`);
  return backend;
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
