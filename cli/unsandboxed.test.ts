import { spawnSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EXIT } from './exit.ts';
import { INSTALLS } from './folders.ts';

let folder: string;

/** Runs the `trialgate` command on a machine whose bubblewrap does not work. */
function trialgate(...args: string[]) {
  const env = { PATH: `${folder}:${process.env['PATH']}`, HOME: folder, TRIALGATE_HOME: join(folder, 'home') };
  return spawnSync(INSTALLS.node, [INSTALLS.main, ...args], { env, cwd: folder, encoding: 'utf8' });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-unsandboxed-'));
  writeFileSync(join(folder, 'bwrap'), '#!/bin/sh\necho "no user namespaces" >&2\nexit 1\n');
  chmodSync(join(folder, 'bwrap'), 0o755);
});
afterAll(() => rm(folder, { recursive: true }));

const WORKER = [
  'worker',
  '--only',
  'activities',
  '--temporal-address',
  '127.0.0.1:1',
  '--database-url',
  'postgres://127.0.0.1:1/x',
  '--gateway-url',
  'http://127.0.0.1:1',
  '--secret',
  'a secret of sixteen',
];

test.each([{ verb: WORKER }, { verb: ['up', '--no-install'] }])(
  '`$verb.0` ends with exit code 3 where bubblewrap does not work, and names the flag that allows it',
  ({ verb }) => {
    const { status, stderr } = trialgate(...verb);
    expect(stderr).toContain('no user namespaces');
    expect(stderr).toContain('--unsandboxed');
    expect(status).toBe(EXIT.missingPrerequisite);
  },
);

test('`doctor` says that bubblewrap is missing, and with `--unsandboxed` what sandboxes do not prevent without it', () => {
  const refused = trialgate('doctor', '--json');
  expect(refused.status).toBe(EXIT.missingPrerequisite);
  expect(JSON.parse(refused.stdout)).toContainEqual({
    check: 'bubblewrap',
    result: 'missing',
    finding: expect.stringContaining('--unsandboxed'),
  });
  const findings = JSON.parse(trialgate('doctor', '--json', '--unsandboxed').stdout);
  expect(findings).toContainEqual({
    check: 'bubblewrap',
    result: 'warning',
    finding: expect.stringContaining('no user namespaces'),
  });
  expect(findings).toContainEqual({
    check: 'sandboxes',
    result: 'warning',
    finding: expect.stringMatching(/^A sandbox reads every file/),
  });
  expect(findings).toContainEqual({
    check: 'network',
    result: 'warning',
    finding: expect.stringContaining('agents reach all that this host reaches'),
  });
});
