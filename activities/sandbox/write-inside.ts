import { constants } from 'node:fs';
import { lstat, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';

/**
 * Writes a new file in a folder of a sandbox, in place of what has its name. The files of an image or a repository may be links to files of
 * this host, so none is followed.
 * @throws an error with the code EEXIST or ELOOP when something else takes the place in the meantime
 */
export async function writeInside(folder: string, name: string, text: string): Promise<string> {
  await makeRealFolder(folder, '.');
  const path = join(folder, name);
  await rm(path, { recursive: true, force: true });
  const file = await open(
    path,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o644,
  );
  try {
    await file.writeFile(text);
    // The mask of the process may have taken rights away, and the sandbox's user reads it.
    await file.chmod(0o644);
  } finally {
    await file.close();
  }
  return path;
}

/**
 * Makes the folder at a relative path below another, unless it exists, and returns its path. Every part of it is a folder, never a link to one:
 * a link could lead what is written there to any place of this host.
 * @throws TrialgateError `bad_input` that names the part which is something else
 */
export async function makeRealFolder(folder: string, path: string): Promise<string> {
  let reached = folder;
  for (const part of ['.', ...path.split('/')]) {
    reached = join(reached, part);
    const found = await lstat(reached).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      return null;
    });
    if (found === null) await mkdir(reached);
    else if (!found.isDirectory())
      throw new TrialgateError(
        'bad_input',
        `the task's files have ${found.isSymbolicLink() ? 'a link' : 'a file'} ${JSON.stringify(part)} where a folder must be: remove it from the image, or choose another folder`,
      );
  }
  return reached;
}
