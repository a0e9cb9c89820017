import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { REPOSITORY } from '../core/repository.ts';

it('the quickstart on a fresh clone says what is missing before it installs the npm packages', () => {
  const clone = mkdtempSync(join(tmpdir(), 'trialgate-clone-'));
  try {
    mkdirSync(join(clone, 'bin'));
    for (const file of ['bootstrap.mjs', 'launch.mjs', 'prerequisites.mjs'])
      cpSync(join(REPOSITORY, 'cli', file), join(clone, 'cli', file));
    const program = (name: string, script: string) => {
      writeFileSync(join(clone, 'bin', name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(clone, 'bin', name), 0o755);
    };
    program('python3', 'echo /usr/bin/python3; echo 3.9.2');
    program('npm', 'echo npm was started; exit 1');
    const start = (...args: string[]) =>
      spawnSync(process.execPath, [join(clone, 'cli/bootstrap.mjs'), ...args], {
        cwd: clone,
        encoding: 'utf8',
        env: { PATH: join(clone, 'bin') },
      });
    const { status, stderr } = start('quickstart');
    expect([status, stderr]).toEqual([
      3,
      expect.stringContaining('Python 3.11, 3.12 or 3.13 is needed and python3 is 3.9.2'),
    ]);
    expect(stderr).not.toContain('npm');
    expect(start('quickstart', '--python', '/nowhere/python').stderr).toContain('/nowhere/python cannot be run');
    // The tests can do without Python, and a file may name one.
    expect(start('test').stderr).toContain('npm was started');
    writeFileSync(join(clone, 'trialgate.yaml'), 'python: /opt/python\n');
    expect(start('quickstart').stderr).not.toContain('Python');
  } finally {
    rmSync(clone, { recursive: true });
  }
});
