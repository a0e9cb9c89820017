import { isolation, requireBubblewrap } from '../../activities/sandbox/isolation.ts';
import { sweepSandboxes } from '../../activities/sandbox/sweep-sandboxes.ts';
import { TrialgateError } from '../../core/errors.ts';
import { isSandboxKind, SANDBOX_KINDS } from '../../core/run-config/sandbox.ts';
import type { Deployment } from '../config/schema.ts';
import { serveSandboxes } from './serve.ts';

/**
 * Serves the sandboxes of one kind over this process's standard input and output.
 * @throws TrialgateError `bad_input` for an unknown kind, `missing_prerequisite` when it does not work here
 */
export async function serveKind(
  kind: string,
  { home, unsandboxed }: Pick<Deployment, 'home' | 'unsandboxed'>,
  signal: AbortSignal,
): Promise<void> {
  if (!isSandboxKind(kind))
    throw new TrialgateError(
      'bad_input',
      `--kind: there is no kind of sandbox ${JSON.stringify(kind)}: it is one of ${SANDBOX_KINDS.join(', ')}`,
    );
  if (kind === 'bubblewrap') requireBubblewrap(await isolation(), unsandboxed);
  // A program that was killed leaves its sandboxes to the next one.
  await sweepSandboxes(home);
  await serveSandboxes(process.stdin, (line) => console.log(line), {
    setting: { kind },
    home,
    signal,
    report: console.error,
  });
}
