import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The folders of the machine to which every user may write. */
const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

/** Removes the files that a sandbox's own user left in folders that every user may write to. bubblewrap leaves none, as it has its own folders. */
export async function removeLeftFiles(uid: number): Promise<void> {
  const args = [...SHARED, '-mindepth', '1', '-maxdepth', '1', '-user', String(uid), '-exec', 'rm', '-rf', '--one-file-system', '{}', '+'];
  // `find` fails if a folder does not exist, or if another process removes a folder first.
  await run('find', args).catch(() => {});
}
