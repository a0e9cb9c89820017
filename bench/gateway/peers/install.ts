import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { findPython } from '../../../cli/install/python.ts';
import { mustRun } from '../../../cli/install/run-step.ts';

const ROOT = join(INSTALLS.root, 'peers');
const LOG = join(INSTALLS.root, 'logs/peers.log');
const VENV = join(ROOT, 'venv');
const NPM = join(ROOT, 'npm');

/** A Python package in an environment that only peers share. Returns the path of its program. */
export async function fromPyPI(requirement: string, program: string, signal: AbortSignal): Promise<string> {
  const file = join(VENV, 'bin', program);
  if (existsSync(file)) return file;
  mkdirSync(ROOT, { recursive: true });
  const python = join(VENV, 'bin/python');
  if (!existsSync(python)) await mustRun('making an environment', LOG, [findPython(undefined).path, '-m', 'venv', VENV], { signal });
  await mustRun(`installing ${requirement}`, LOG, [python, '-m', 'pip', 'install', '--no-input', requirement], { signal });
  return file;
}

/** An npm package in a folder that only peers share. Returns the path of `file` in it. */
export async function fromNpm(name: string, version: string, file: string, signal: AbortSignal): Promise<string> {
  const path = join(NPM, 'node_modules', name, file);
  if (existsSync(path)) return path;
  mkdirSync(NPM, { recursive: true });
  await mustRun(`installing ${name}`, LOG, ['npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--prefix', NPM, `${name}@${version}`], { signal });
  return path;
}
