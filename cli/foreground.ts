import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { TrialgateError } from '../core/errors.ts';
import type { Launch } from './supervisor/component.ts';

/** Runs a process in our terminal and passes signals on. Returns its exit code, or 0 when a signal that we passed on ended it. */
export function runInForeground({ file, args, env, cwd }: Launch): Promise<number> {
  if (cwd) mkdirSync(cwd, { recursive: true });
  const child = spawn(file, args, { env, cwd, stdio: 'inherit' });
  let wasSignalled = false;
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(name, () => (wasSignalled = child.kill(name)));
  return new Promise((resolve, reject) => {
    child.on('error', (cause) =>
      reject(
        new TrialgateError('missing_prerequisite', `${file} cannot be started: run \`npx trialgate install\``, {
          cause,
        }),
      ),
    );
    child.on('exit', (code) => resolve(wasSignalled ? 0 : (code ?? 4)));
  });
}
