import { existsSync } from 'node:fs';
import path from 'node:path';
import { INSTALLS } from '../folders.ts';
import { content, FROM_LOCK, lockFile } from './locks.ts';
import { findPython } from './python.ts';
import { mustRun } from './run-step.ts';
import { isDone, markDone, type StampedStep } from './stamps.ts';

const VENV = path.join(INSTALLS.tools, 'python');

/** Returns the stamp of the tools' environment. */
export const toolsStep = (program: 'uv' | 'pip-audit'): StampedStep => ({
  name: 'tools',
  inputs: { lock: content(lockFile('tools')) },
  makes: path.join(VENV, 'bin', program),
});

/** Returns the path of `uv` or `pip-audit`. The first caller makes their environment from its lock. */
export async function pythonTool(program: 'uv' | 'pip-audit', log: string, signal: AbortSignal): Promise<string> {
  const made = toolsStep(program);
  const file = made.makes;
  if (isDone(made)) return file;
  const python = path.join(VENV, 'bin/python');
  const base = existsSync(INSTALLS.python) ? INSTALLS.python : findPython(undefined).path;
  await mustRun('making an environment for tools', log, [base, '-m', 'venv', '--clear', VENV], { signal });
  await mustRun(`installing ${program}`, log, [python, '-m', 'pip', ...FROM_LOCK, '-r', lockFile('tools')], { signal });
  markDone(made);
  return file;
}
