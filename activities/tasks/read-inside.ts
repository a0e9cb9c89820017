import { constants } from 'node:fs';
import { open, readlink, realpath } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { TrialgateError } from '../../core/errors.ts';
import { decodeUtf8 } from '../../core/utf8.ts';

const LEAVES = 'is a link that leads out of the task: copy what it names into the task';

/**
 * Returns the text of a task's file. A link is followed only within the task. The check uses the real path of the opened file,
 * so exchanging a link during the read gains nothing.
 * @param root the real path of the task's folder
 * @throws TrialgateError `bad_input` for a link out of the task and for text that is not UTF-8; the system's error for a file that cannot be read
 */
export async function readInside(root: string, name: string): Promise<string> {
  const path = join(root, name);
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!isBelow(root, await readlink(`/proc/self/fd/${file.fd}`)))
      throw new TrialgateError('bad_input', `${path} ${LEAVES}`);
    if (!(await file.stat()).isFile()) throw new TrialgateError('bad_input', `${path} is not a regular file`);
    return decodeUtf8(await file.readFile(), path);
  } finally {
    await file.close();
  }
}

/** @throws TrialgateError `bad_input` where the folder is a link out of the task; a folder that does not exist is no error */
export async function requireInside(root: string, name: string): Promise<void> {
  const path = join(root, name);
  const real = await realpath(path).catch(() => null);
  if (real !== null && !isBelow(root, real)) throw new TrialgateError('bad_input', `${path} ${LEAVES}`);
}

const isBelow = (root: string, path: string): boolean => path.startsWith(root + sep);
