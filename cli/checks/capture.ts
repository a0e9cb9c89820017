import { spawn } from 'node:child_process';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { INSTALLS } from '../folders.ts';
import { REPOSITORY } from '../../core/repository.ts';

export type CommandOutput = { code: number; stdout: string; stderr: string };

/** Runs a command in the repository under the project's own Node. A missing program ends with code 127, as in a shell. */
export async function capture(
  command: readonly string[],
  signal: AbortSignal,
  more: NodeJS.ProcessEnv = {},
): Promise<CommandOutput> {
  const [file = '', ...args] = command;
  const env = {
    ...process.env,
    PATH: `${path.dirname(INSTALLS.node)}:${process.env['PATH']}`,
    PYTHONDONTWRITEBYTECODE: '1',
    NO_COLOR: '1',
    ...more,
  };
  const child = spawn(file, args, { cwd: REPOSITORY, env, signal, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = new Promise<number>((resolve) => {
    child.once('error', () => resolve(127));
    child.once('close', (code) => resolve(code ?? 137));
  });
  const [stdout, stderr, code] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  signal.throwIfAborted();
  return { code, stdout, stderr };
}

/** Returns the last line that is not empty. */
export const lastLine = (output: string): string => output.trim().split('\n').at(-1)?.trim() ?? '';
