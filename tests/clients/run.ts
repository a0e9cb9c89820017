import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { endGroup, identify } from '../../cli/supervisor/processes.ts';
import type { Client } from './client.ts';

export type RunResult = { code: number | null; output: string; timedOut: boolean; seconds: number };
export type RunOptions = { folder: string; trialUrl: string; key: string; limitMs: number; modes: readonly string[] };

/** Runs a client against a trial, with its own home and environment, and ends everything that it started. */
export async function runClient(client: Client, { modes, limitMs, ...at }: RunOptions): Promise<RunResult> {
  if (!client.oneMode) return runOnce(client, { modes, limitMs, ...at });
  const runs: RunResult[] = [];
  for (const mode of modes) runs.push(await runOnce(client, { modes: [mode], limitMs, ...at }));
  return {
    code: runs.find(({ code }) => code !== 0)?.code ?? runs.at(-1)?.code ?? null,
    output: runs.map(({ output }) => output).join(''),
    timedOut: runs.some(({ timedOut }) => timedOut),
    seconds: runs.reduce((sum, { seconds }) => sum + seconds, 0),
  };
}

async function runOnce(client: Client, { folder, trialUrl, key, limitMs, modes }: RunOptions): Promise<RunResult> {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-client-'));
  const work = join(home, 'work');
  await mkdir(work);
  const {
    file,
    args,
    env,
    files = {},
    packages,
  } = client.start({ trialUrl, key, home, work, folder, scripts: join(import.meta.dirname, 'scripts') }, modes);
  if (packages !== undefined) await symlink(packages, join(work, 'node_modules'));
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(home, name)), { recursive: true });
    await writeFile(join(home, name), content);
  }
  const bin = [
    join(folder, 'bin'),
    join(folder, 'node_modules/.bin'),
    dirname(process.execPath),
    '/usr/local/bin',
    '/usr/bin',
    '/bin',
  ];
  const began = performance.now();
  const child = spawn(file, args, {
    cwd: work,
    env: { HOME: home, PATH: bin.join(delimiter), LANG: 'C.UTF-8', TERM: 'dumb', NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const leader = identify(child.pid ?? 0);
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    void endGroup(leader, 'SIGKILL', 0);
  }, limitMs);
  try {
    const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    return {
      code: typeof code === 'number' ? code : null,
      output: `${out}${err}`,
      timedOut,
      seconds: (performance.now() - began) / 1000,
    };
  } finally {
    clearTimeout(timer);
    await endGroup(leader, 'SIGKILL', 0);
    await rm(home, { recursive: true, force: true });
  }
}
