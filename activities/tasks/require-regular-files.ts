import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { FolderTask } from '../../core/task.ts';

/**
 * Refuses a task whose environment or tests have links, special files or a folder that cannot be read, because sandboxes get copies of
 * regular files alone.
 * @throws TrialgateError `bad_input`
 */
export async function requireRegularFiles({ folder }: FolderTask): Promise<void> {
  for (const part of ['environment', 'tests']) {
    const path = join(folder, part);
    const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' && error.path === path) return [];
        throw new TrialgateError(
          'bad_input',
          `${error.path ?? path} cannot be read (${error.code}): sandboxes get copies of its files, so make it a folder that this user can read`,
          { cause: error },
        );
      },
    );
    const other = entries.find((entry) => !entry.isFile() && !entry.isDirectory());
    if (other) throw notCopied(join(other.parentPath, other.name));
  }
}

/** The error for a file of a task that no sandbox gets. */
export const notCopied = (path: string): TrialgateError =>
  new TrialgateError(
    'bad_input',
    `${path}: a sandbox gets no links and special files of a task: replace it by a copy of what it names, or remove it`,
  );
