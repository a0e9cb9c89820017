import { TrialgateError } from '../../../core/errors.ts';
import type { Image, SandboxBackend } from '../backend.ts';
import { openContext } from './context.ts';

const SCRIPT = 'python3 -c ""';
/** The exit codes with which shells and runtimes say that a program is not there, or cannot be run. */
const NOT_FOUND: readonly (number | null)[] = [126, 127];

/**
 * Runs in one sandbox the programs of which the checks are made. Without them nearly every check would fail, and say nothing about the kind.
 * @throws TrialgateError `bad_input` when one of them is missing
 */
export async function requirePrograms(
  backend: SandboxBackend,
  options: { home: string; image: Image | null; signal: AbortSignal },
): Promise<void> {
  await using context = openContext(backend, options);
  const { reason, exitCode, stdout, stderr } = await context.shell(await context.start('programs.1'), SCRIPT);
  options.signal.throwIfAborted();
  // Any other end is what the checks are for.
  if (reason !== 'exited' || !NOT_FOUND.includes(exitCode)) return;
  const where = options.image === null ? 'a sandbox' : 'the image';
  throw new TrialgateError(
    'bad_input',
    `the checks are scripts and need \`bash\` and \`python3\`, but \`bash -c '${SCRIPT}'\` ended in ${where} with exit code ${exitCode}: ${(stdout + stderr).trim().slice(-400)}. Test with an image that has both (\`sandbox.image\` of the file of --run), or install them where the sandboxes run`,
  );
}
