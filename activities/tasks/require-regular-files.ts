import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import type { FolderTask } from '../../core/task.ts';

/**
 * Refuses a task with links or special files in its environment or its tests, because sandboxes get copies of regular files alone.
 * @throws TrialgateError `bad_input`
 */
export async function requireRegularFiles({ folder }: FolderTask): Promise<void> {
  for (const part of ['environment', 'tests']) {
    const entries = await readdir(join(folder, part), { recursive: true, withFileTypes: true }).catch(() => []);
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
