import { stat } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { meantPath } from '../../core/nearest-path.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { isRowsFile } from './formats/index.ts';

/**
 * Finds a folder. A relative one is searched in the working directory and then in the repository, so that `tasks/train` always works.
 * @param key the key of a run file that messages begin with; null for a folder that a command names
 */
export async function locate(folder: string, key: 'tasks' | null = 'tasks'): Promise<string> {
  const about = key === null ? '' : `${key}: `;
  const places = isAbsolute(folder) ? [folder] : [resolve(folder), resolve(REPOSITORY, folder)];
  for (const place of places) {
    const found = await stat(place).catch(() => null);
    if (found?.isDirectory()) return place;
    if (found?.isFile() && isRowsFile(place))
      throw new TrialgateError(
        'bad_input',
        `${about}${place} is a file of rows, not a folder: name it in a run file as \`tasks: [{rows: ${folder}, prompt: …}]\` with a \`reward\` ` +
          `(docs/tasks.md), and try one of its rows with \`npx trialgate try ${folder}#0 --run RUN_FILE\``,
      );
  }
  const looked = isAbsolute(folder) ? '' : ` (looked at ${[...new Set(places)].join(', ')})`;
  throw new TrialgateError('bad_input', `${about}no folder ${folder}${looked}${await meantPath(folder)}`);
}
