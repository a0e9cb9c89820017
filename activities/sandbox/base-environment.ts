import { dirname } from 'node:path';
import type { Python } from './find-python.ts';

/** The environment of every sandboxed process, before its own variables. Nothing of the host's environment is passed on. */
export function baseEnvironment(python: Python, folders: { home: string; tmp: string }): Record<string, string> {
  const path = [dirname(python.executable), '/usr/local/bin', '/usr/bin', '/bin'];
  return {
    PATH: [...new Set(path)].join(':'),
    HOME: folders.home,
    TMPDIR: folders.tmp,
    LANG: 'C.UTF-8',
    PYTHONDONTWRITEBYTECODE: '1',
  };
}
