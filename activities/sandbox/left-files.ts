import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The folders of the machine to which every user may write. */
const SHARED = ['/tmp', '/var/tmp', '/dev/shm'];

/**
 * Removes the files that a sandbox's own user left in folders that every user may write to. These can also be folders of others in /tmp.
 * bubblewrap leaves no files, as it has its own folders.
 */
export async function removeLeftFiles(uid: number): Promise<void> {
  // `-execdir` enters the folder first, so that nobody can replace a part of the path by a link. It needs a PATH without relative folders.
  const remove = ['-user', String(uid), '-prune', '-execdir', 'rm', '-rf', '--one-file-system', '{}', '+'];
  const skip = ['-type', 'd', '!', '-perm', '-0002', '-prune'];
  const args = [...SHARED, '-xdev', '-mindepth', '1', '(', ...remove, ')', '-o', '(', ...skip, ')'];
  // `find` fails if a folder does not exist, or if another process removes a folder first.
  await run('find', args, { env: { PATH: '/usr/bin:/bin' }, maxBuffer: 2 ** 24 }).catch(() => {});
}
