import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isTask } from '../../activities/tasks/load-task.ts';
import { locate } from '../../activities/tasks/locate.ts';
import { TrialgateError } from '../../core/errors.ts';

/** The most tasks that the refusal names. */
const NAMED = 8;

/** @throws TrialgateError `bad_input` when the folder is no task, but has some */
export async function requireOneTask(folder: string): Promise<void> {
  const root = await locate(folder, null);
  if (await isTask(root)) return;
  const names = (await readdir(root)).toSorted();
  const isOne = await Promise.all(names.map((name) => isTask(join(root, name))));
  const tasks = names.filter((_, index) => isOne[index]);
  const [first] = tasks;
  if (first === undefined) return;
  const more = tasks.length > NAMED ? `, and ${tasks.length - NAMED} more` : '';
  throw new TrialgateError(
    'bad_input',
    `${folder} is no task, it has ${tasks.length}: ${tasks.slice(0, NAMED).join(', ')}${more}. Name one: npx trialgate try ${join(folder, first)}`,
  );
}
