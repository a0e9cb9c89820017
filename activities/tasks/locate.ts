import { stat } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { TrialgateError } from '../../store/errors.ts';

const repository = fileURLToPath(new URL('../..', import.meta.url));

/** Finds a folder. A relative one is searched in the working directory and then in the repository, so that `tasks/train` always works. */
export async function locate(folder: string): Promise<string> {
  const places = isAbsolute(folder) ? [folder] : [resolve(folder), resolve(repository, folder)];
  for (const place of places) {
    if ((await stat(place).catch(() => null))?.isDirectory()) return place;
  }
  throw new TrialgateError('bad_input', `tasks: no folder ${folder} (looked at ${[...new Set(places)].join(', ')})`);
}
