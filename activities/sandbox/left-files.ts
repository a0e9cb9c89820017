import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Folders of the machine that every user may write to. */
const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

/** Removes what a sandbox's own user left where every user may write. Under bubblewrap there is nothing: it has its own. */
export async function removeLeftFiles(uid: number): Promise<void> {
  const args = [...SHARED, '-mindepth', '1', '-maxdepth', '1', '-user', String(uid), '-exec', 'rm', '-rf', '--one-file-system', '{}', '+'];
  // A folder that is not there makes find fail; so does a file that another process removes first.
  await run('find', args).catch(() => {});
}
