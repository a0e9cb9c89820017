import { stat } from 'node:fs/promises';
import { isAbsolute, resolve } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { REPOSITORY } from '../../core/repository.ts';

/** Finds a folder. A relative one is searched in the working directory and then in the repository, so that `tasks/train` always works. */
export async function locate(folder: string): Promise<string> {
  const places = isAbsolute(folder) ? [folder] : [resolve(folder), resolve(REPOSITORY, folder)];
  for (const place of places) {
    if ((await stat(place).catch(() => null))?.isDirectory()) return place;
  }
  throw new TrialgateError('bad_input', `tasks: no folder ${folder} (looked at ${[...new Set(places)].join(', ')})`);
}
