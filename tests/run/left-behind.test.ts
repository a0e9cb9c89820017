import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { endLeftBehind } from './left-behind.ts';

test('the test runner ends an engine that an interrupted test left, and not one of another copy of the repository', async () => {
  const [own, other] = [0, 1].map(() => mkdtempSync(path.join(tmpdir(), 'trialgate-left-')));
  const started = [own, other].map((folder) =>
    spawn('sleep', ['600'], {
      detached: true,
      stdio: 'ignore',
      env: { PATH: process.env['PATH'], HOME: `${folder}/home` },
    }),
  );
  const [left, foreign] = started;
  try {
    await Promise.all(started.map((child) => once(child, 'spawn')));
    const ended = left && once(left, 'exit');
    await endLeftBehind(own ?? '');
    expect(await ended).toEqual([null, 'SIGTERM']);
    expect(foreign?.exitCode ?? foreign?.signalCode).toBeNull();
  } finally {
    for (const child of started) child.kill('SIGKILL');
    for (const folder of [own, other]) rmSync(folder ?? '', { recursive: true });
  }
});
