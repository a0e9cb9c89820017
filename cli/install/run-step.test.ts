import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isDead, readProcessStat } from '../../core/process-stat.ts';
import { until } from '../../tests/support/harness/until.ts';
import { mustRun } from './run-step.ts';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'trialgate-step-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

it('a step of the installation that is interrupted also ends the processes that its command started', async () => {
  const [log, pidFile] = [join(folder, 'log'), join(folder, 'pid')];
  const interrupted = new AbortController();
  const running = mustRun(
    'installing',
    log,
    ['sh', '-c', `sleep 300 & echo $! > ${pidFile}.new && mv ${pidFile}.new ${pidFile}; wait`],
    { signal: interrupted.signal },
  );
  await until(() => existsSync(pidFile));
  const pid = Number(readFileSync(pidFile, 'utf8'));
  expect(isDead(readProcessStat(pid))).toBe(false);
  interrupted.abort();
  await expect(running).rejects.toThrow('abort');
  await until(() => isDead(readProcessStat(pid)));
});

it('a step of the installation that fails raises an error with its output and the path of its log', async () => {
  const log = join(folder, 'log');
  await expect(mustRun('installing', log, ['sh', '-c', 'echo all is lost >&2; exit 3'])).rejects.toThrow(
    `installing failed: all is lost (all output: ${log})`,
  );
});
