import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';

/** Checks out another commit with its packages. Disposing removes it. */
export function checkedOut(commit: string): Disposable & { path: string } {
  const folder = mkdtempSync(join(tmpdir(), 'trialgate-before-'));
  const path = join(folder, 'before');
  const remove = (): void => {
    // A failure here would hide the error that ended the benchmark: git has no such worktree when it could not add one.
    spawnSync('git', ['-C', REPOSITORY, 'worktree', 'remove', '--force', path], { stdio: 'ignore' });
    rmSync(folder, { recursive: true, force: true });
    spawnSync('git', ['-C', REPOSITORY, 'worktree', 'prune'], { stdio: 'ignore' });
  };
  try {
    execFileSync('git', ['-C', REPOSITORY, 'worktree', 'add', '--quiet', '--detach', path, commit]);
    execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: path, stdio: 'ignore' });
    symlinkSync(join(REPOSITORY, '.trialgate'), join(path, '.trialgate'));
  } catch (error) {
    remove();
    throw error;
  }
  return { path, [Symbol.dispose]: remove };
}
