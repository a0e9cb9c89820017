import { spawnSync } from 'node:child_process';
import { TrialgateError } from '../../core/errors.ts';

export type Python = { path: string; version: string };

const CANDIDATES = ['python3.13', 'python3.12', 'python3.11', 'python3'];
const PROBE = 'import sys; print(sys.executable); print("%d.%d.%d" % sys.version_info[:3]); import venv, ensurepip';

/**
 * Returns a Python from 3.11 to 3.13 that can make virtual environments: the named one, else the first on the PATH.
 * @throws TrialgateError `missing_prerequisite` that says what is missing.
 */
export function findPython(named: string | undefined): Python {
  const without: string[] = [];
  const wrong: string[] = [];
  for (const name of named ? [named] : CANDIDATES) {
    const probe = spawnSync(name, ['-c', PROBE], { encoding: 'utf8', timeout: 20_000 });
    const [path = '', version = ''] = (probe.stdout ?? '').trim().split('\n');
    if (!version) continue;
    const minor = Number(version.split('.')[1]);
    if (!version.startsWith('3.') || minor < 11 || minor > 13) wrong.push(`${name} is ${version}`);
    else if (probe.status !== 0) without.push(`${name} (${version})`);
    else return { path, version };
  }
  const wanted = 'Python 3.11, 3.12 or 3.13';
  if (without.length) {
    throw missing(
      `${without.join(', ')} cannot make virtual environments: install its venv module (Debian, Ubuntu: \`apt-get install python3-venv\`)`,
    );
  }
  const found = wrong.length ? wrong.join(', ') : named ? `${named} cannot be run` : 'none is on the PATH';
  throw missing(
    `${wanted} is needed and ${found}: install one (Debian, Ubuntu: \`apt-get install python3 python3-venv\`), or name one with TRIALGATE_PYTHON`,
  );
}

const missing = (sentence: string): TrialgateError => new TrialgateError('missing_prerequisite', sentence);
