import { dirname, join } from 'node:path';
import type { Environment } from '../../activities/environments/environment.ts';
import { pythonEnvironment } from '../../activities/environments/python.ts';
import { loadAgent } from '../../activities/sandbox/load-agent.ts';
import { runAgentProcess } from '../../activities/sandbox/run-agent-process.ts';
import { sandboxWith, taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { asking, type Client } from './client.ts';
import type { RunResult, RunOptions } from './run.ts';
import { openBackend } from '../../activities/sandbox/backends.ts';

const backend = await openBackend();

/** Runs a client in a sandbox, once for each mode, by the bundled agent of its name. */
export async function runAsAgent(
  { name }: Pick<Client, 'name'>,
  { folder, trialUrl, key, limitMs, modes }: RunOptions,
): Promise<RunResult> {
  const agent = await loadAgent(name);
  const environment = await environmentOf(agent.python !== undefined, folder);
  const url = new URL(trialUrl);
  const results = [];
  for (const mode of modes) {
    await using home = await temporaryHome();
    const task = {
      ...(await taskWith(home.home, 'true')),
      instruction: asking(mode),
      agent: { timeoutSec: limitMs / 1000 },
    };
    const result = await runAgentProcess({
      agent,
      task,
      backend,
      environment,
      sandbox: await sandboxWith(home.home, {}, task),
      trialId: url.pathname.slice(1),
      gateway: url.origin,
      network: 'gateway',
      apiKey: key,
      model: 'policy',
      signal: new AbortController().signal,
    });
    results.push(result.process);
  }
  return {
    code: results.find(({ exitCode }) => exitCode !== 0)?.exitCode ?? results.at(-1)?.exitCode ?? null,
    output: results.map(({ stdout, stderr }) => `${stdout}${stderr}`).join(''),
    timedOut: results.some(({ reason }) => reason === 'timed_out'),
    seconds: results.reduce((sum, { seconds }) => sum + seconds, 0),
  };
}

/** Returns the client's locked packages in place of those that the agent's file names, which would be installed once more. */
export async function environmentOf(isPython: boolean, folder: string): Promise<Environment> {
  const options = { home: folder, signal: new AbortController().signal };
  if (isPython) return pythonEnvironment({ venv: folder }, options);
  const node = dirname(process.execPath);
  const nodeModules = join(folder, 'node_modules');
  return { folders: [folder, node], path: [join(nodeModules, '.bin'), node], python: null, nodeModules };
}
