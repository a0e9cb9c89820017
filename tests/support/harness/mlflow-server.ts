import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { INSTALLS } from '../../../cli/folders.ts';
import { installLocked } from '../../../cli/install/locked-folder.ts';
import { lockFile } from '../../../cli/install/locks.ts';
import { freePort } from '../../../core/free-port.ts';
import { startEdge } from './edge.ts';
import { until } from './until.ts';

const LOG = join(INSTALLS.root, 'logs/mlflow-server.log');

export type MlflowServer = {
  url: string;
  /** Puts the server out of reach. */
  cut(): Promise<void>;
  restore(): Promise<void>;
  remove(): Promise<void>;
};

/** Starts mlflow's own server on a database of its own. The first caller installs it. */
export async function startMlflow(signal: AbortSignal): Promise<MlflowServer> {
  const installed = await installLocked(
    join(INSTALLS.root, 'mlflow-server'),
    { python: lockFile('mlflow-server') },
    { log: LOG, signal },
  );
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-mlflow-'));
  const behind = await freePort('127.0.0.1');
  const store = `sqlite:///${folder}/mlflow.db`;
  const options = ['--host', '127.0.0.1', '--port', `${behind}`, '--workers', '1', '--backend-store-uri', store];
  const env = { ...process.env, MLFLOW_SERVER_ENABLE_JOB_EXECUTION: 'false' };
  // It starts processes of its own, which are in one group with the shell. The shell ends the group when this process has ended.
  const watched = ['-c', '"$@" & read -r _; kill -KILL 0', 'sh', join(installed, 'bin/mlflow'), 'server', ...options];
  const server = spawn('sh', watched, { cwd: folder, stdio: ['pipe', 'ignore', 'ignore'], detached: true, env });
  const ended = new Promise<void>((resolve) => server.once('close', () => resolve()));
  const end = async () => {
    server.stdin.end();
    await ended;
    await rm(folder, { recursive: true });
  };
  try {
    await until(async () => (await fetch(`http://127.0.0.1:${behind}/health`).catch(() => null))?.ok);
  } catch (error) {
    await end();
    throw error;
  }
  // A start of the server computes for many seconds, so an outage is one of the way to it.
  let front = await startEdge(behind);
  return {
    url: front.url,
    cut: () => front.close(),
    async restore() {
      front = await startEdge(behind, Number(new URL(front.url).port));
    },
    async remove() {
      await front.close();
      await end();
    },
  };
}
