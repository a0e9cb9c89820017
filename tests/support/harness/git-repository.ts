import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';
import { writeFiles } from './sandbox-fixtures.ts';

const run = promisify(execFile);

const WHO = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@b', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@b' };

/** Runs git in a folder, without the settings of this machine's user, and returns what it printed. */
export async function gitIn(folder: string, ...args: string[]): Promise<string> {
  const env = { PATH: process.env.PATH, HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1', ...WHO };
  const { stdout } = await run('git', ['-C', folder, ...args], { env, maxBuffer: 2 ** 26 });
  return stdout.trim();
}

/** Makes a repository on the branch `trunk`. */
export async function newRepository(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await gitIn(folder, 'init', '--quiet', '--initial-branch=trunk');
}

/** Writes files, commits all that changed, and returns the commit's id. */
export async function commitFiles(folder: string, message: string, files: Record<string, string>): Promise<string> {
  await writeFiles(folder, files);
  await gitIn(folder, 'add', '--all');
  await gitIn(folder, 'commit', '--quiet', '--allow-empty', `--message=${message}`);
  return gitIn(folder, 'rev-parse', 'HEAD');
}
