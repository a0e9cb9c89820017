import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { isDead, readProcessStat } from '../../core/process-stat.ts';
import { until } from '../../tests/support/harness/until.ts';
import { killTree } from './kill-tree.ts';

test('a child of bubblewrap that is in a session of its own, and not yet bound to the life of its parent, is killed with it', async () => {
  const parent = spawn('bash', ['-c', 'setsid sleep 3600 & echo $!; wait'], {
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void parent.kill('SIGKILL'));
  const [said] = await once(parent.stdout, 'data');
  const child = Number(String(said));
  onTestFinished(() => {
    if (!isDead(readProcessStat(child))) process.kill(child, 'SIGKILL');
  });
  await until(() => readProcessStat(child)?.group === child);
  await killTree({ pid: parent.pid ?? 0, uid: null, marker: 'none', namespaced: true });
  await until(() => isDead(readProcessStat(child)));
  expect(isDead(readProcessStat(child))).toBe(true);
});
