import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { INSTALLS } from '../folders.ts';
import { FROM_LOCK } from './locks.ts';
import { failure, mustRun } from './run-step.ts';

const WHEEL = 'small_package-1.0-py3-none-any.whl';
/** Writes the smallest wheel that pip installs: argv is its path. */
const MAKE_WHEEL = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('small_package.py', 'answer = 42')
    wheel.writestr('small_package-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: small-package\\nVersion: 1.0\\n')
    wheel.writestr('small_package-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('small_package-1.0.dist-info/RECORD', '')
`;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'trialgate-locks-'));
  execFileSync(INSTALLS.python, ['-c', MAKE_WHEEL, join(folder, WHEEL)]);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Installs `requirement` into the folder `to`, as the installer does, from an index that has the small wheel alone. */
async function install(requirement: string, to: string): Promise<boolean> {
  const lock = join(folder, 'requirements.txt');
  writeFileSync(lock, requirement);
  const from = ['--no-index', '--find-links', folder, '--target', join(folder, to)];
  await mustRun('installing', join(folder, 'log'), [INSTALLS.python, '-m', 'pip', ...FROM_LOCK, ...from, '-r', lock]);
  return existsSync(join(folder, to, 'small_package.py'));
}

it('the installer installs a Python package whose file has the locked digest', async () => {
  const digest = createHash('sha256')
    .update(readFileSync(join(folder, WHEEL)))
    .digest('hex');
  expect(await install(`small-package==1.0 --hash=sha256:${digest}`, 'good')).toBe(true);
});

it('the installer does not install a file with another digest than the locked one, and says which and what to do', async () => {
  const installing = install(`small-package==1.0 --hash=sha256:${'0'.repeat(64)}`, 'other');
  await expect(installing).rejects.toThrow(
    /installing failed: the package index gave a file for small-package==1\.0 that is not the locked one .*Try again/,
  );
  expect(existsSync(join(folder, 'other'))).toBe(false);
});

it('the installer does not install a Python package whose lock has no digest', async () => {
  await expect(install('small-package==1.0', 'without')).rejects.toThrow('Hashes are required');
  expect(existsSync(join(folder, 'without'))).toBe(false);
});

it('the installer gives the same message when uv finds a file with another digest than the locked one', () => {
  const text =
    'error: Failed to download `torch==2.13.0+cpu`\n  cause: Hash mismatch for `torch==2.13.0+cpu`\n\n         Expected:\n           sha256:00';
  expect(failure('installing PyTorch', { code: 1, text }, 'the log').message).toContain(
    'the package index gave a file for torch==2.13.0+cpu that is not the locked one',
  );
});
