import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { isTask, loadTask } from './load-task.ts';
import { locate } from './locate.ts';

/**
 * Returns the tasks in the folders, in the form in which the folders were given, so that they can be stored and loaded elsewhere. A folder
 * is a task, or has tasks, which are sorted. Every task is loaded, so that an invalid one is refused early.
 * @throws TrialgateError `bad_input`
 */
export async function listTasks(folders: string[]): Promise<string[]> {
  const lists = await Promise.all(folders.map(listFolder));
  const tasks = [...new Set(lists.flat())];
  await Promise.all(tasks.map(loadTask));
  return tasks;
}

async function listFolder(folder: string): Promise<string[]> {
  const root = await locate(folder);
  if (await isTask(root)) return [folder];
  const entries = await readdir(root, { withFileTypes: true });
  const tasks = entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .map((entry) => entry.name);
  if (tasks.length === 0)
    throw new TrialgateError('bad_input', `tasks: ${root} is neither a task nor a folder of tasks`);
  return tasks.toSorted().map((name) => join(folder, name));
}
