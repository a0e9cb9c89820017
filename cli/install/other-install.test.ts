import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { awaitLock } from '../../core/lock.ts';
import { INSTALLS } from '../folders.ts';
import { otherInstall } from './other-install.ts';

test('another process that installs is named, and nobody when none does', async () => {
  const root = mkdtempSync(join(tmpdir(), 'trialgate-root-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  expect(otherInstall(root)).toBeNull();
  const lock = await awaitLock(root, 'install', new AbortController().signal);
  expect(otherInstall(root)).toMatch(/^node \(process \d+\) installs Trialgate here now: wait until it has ended$/);
  await lock.release();
});

test('while another process installs, commands that find nothing say which process that is, and to wait for it', async () => {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-installs-'));
  const lock = await awaitLock(INSTALLS.root, 'install', new AbortController().signal);
  onTestFinished(async () => {
    await lock.release();
    rmSync(home, { recursive: true });
  });
  const said = (verb: string) => {
    const env = { PATH: process.env['PATH'], HOME: home, TRIALGATE_HOME: home };
    const { stdout, stderr } = spawnSync(INSTALLS.node, [INSTALLS.main, verb], { env, cwd: home, encoding: 'utf8' });
    return stdout + stderr;
  };
  const sentence = `node (process ${process.pid}) installs Trialgate here now: wait until it has ended\n`;
  expect(said('status')).toBe(`nothing was started in ${home} yet: ${sentence}`);
  const shown = said('show');
  expect(shown).toMatch(/^error: .*nothing was started/);
  expect(shown.endsWith(`\n${sentence}`)).toBe(true);
});
