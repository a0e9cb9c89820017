import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/**
 * Removes a folder with any content. `rm` walks by descriptors, so depth and names do not matter. Returns null on success,
 * otherwise the reason why something remains.
 */
export async function removeTree(path: string): Promise<string | null> {
  if ((await failureOf('rm', path)) === null) return null;
  // A folder without permissions stops its owner, unless the owner is root.
  await failureOf('chmod', path);
  return failureOf('rm', path);
}

const OPTIONS = { rm: ['-rf', '--one-file-system'], chmod: ['-R', 'u+rwX'] };

async function failureOf(program: keyof typeof OPTIONS, path: string): Promise<string | null> {
  try {
    await run(program, [...OPTIONS[program], '--', path], { maxBuffer: 2 ** 16 });
    return null;
  } catch (error) {
    return (error instanceof Error ? error.message : String(error)).slice(0, 500).trim();
  }
}
