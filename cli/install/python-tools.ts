import { existsSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { content, FROM_LOCK, lockFile } from './locks.ts';
import { findPython } from './python.ts';
import { mustRun } from './run-step.ts';
import { isDone, markDone } from './stamps.ts';

const VENV = path.join(INSTALLS.tools, 'python');

/** Returns the path of `uv` or `pip-audit`. The first caller makes their environment from its lock. */
export async function pythonTool(program: 'uv' | 'pip-audit', log: string, signal: AbortSignal): Promise<string> {
  const file = path.join(VENV, 'bin', program);
  const made = { name: 'tools', inputs: { lock: content(lockFile('tools')) }, makes: file };
  if (isDone(made)) return file;
  const python = path.join(VENV, 'bin/python');
  const base = existsSync(INSTALLS.python) ? INSTALLS.python : findPython(undefined).path;
  await mustRun('making an environment for tools', log, [base, '-m', 'venv', '--clear', VENV], { signal });
  await mustRun(`installing ${program}`, log, [python, '-m', 'pip', ...FROM_LOCK, '-r', lockFile('tools')], { signal });
  markDone(made);
  return file;
}
