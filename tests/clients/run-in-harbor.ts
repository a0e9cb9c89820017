import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import { harborPython, harborVariables, TRIALGATE } from '../support/harness/harbor.ts';
import { temporaryHome, writeFiles } from '../support/harness/sandbox-fixtures.ts';
import { asking, type Client } from './client.ts';
import { environmentOf } from './run-as-agent.ts';
import type { RunOptions, RunResult } from './run.ts';

const ended = z.object({ valid: z.boolean(), failures: z.array(z.string()) });

/** Harbor runs a client in a sandbox of Trialgate, once for each mode, by its own agent of this name. */
export async function runInHarbor(
  { name, install }: Pick<Client, 'name' | 'install'>,
  { folder, trialUrl, key, limitMs, modes }: RunOptions,
): Promise<RunResult> {
  const python = await harborPython(AbortSignal.timeout(600_000));
  await using place = await temporaryHome();
  const tasks = await Promise.all(
    modes.map((mode, index) => writeTask(join(place.home, `task-${index}`), mode, limitMs)),
  );
  const { folders, path } = await environmentOf('python' in install, folder);
  const given = {
    agent: name,
    tasks,
    folder: join(place.home, 'kept'),
    base_url: `${trialUrl}/v1`,
    api_key: key,
    environment_args: {
      trialgate: TRIALGATE,
      readable: folders,
      // An install script would put this program of Claude Code in the place of `.bin/claude`.
      path: [join(folder, 'node_modules/@anthropic-ai/claude-code-linux-x64'), ...path],
    },
  };
  const began = performance.now();
  const { stdout, stderr, failed } = await promisify(execFile)(
    python,
    [join(import.meta.dirname, 'scripts/harbor_trial.py'), JSON.stringify(given)],
    { env: harborVariables(place.home), timeout: limitMs, killSignal: 'SIGINT', maxBuffer: 2 ** 26 },
  ).then(
    (output) => ({ ...output, failed: false }),
    (error: { stdout: string; stderr: string }) => ({ ...error, failed: true }),
  );
  const results = stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => ended.parse(JSON.parse(line)));
  const isWell =
    !failed &&
    results.length === modes.length &&
    results.every(({ valid, failures }) => valid && failures.length === 0);
  return {
    code: isWell ? 0 : 1,
    output: stdout + stderr,
    timedOut: false,
    seconds: (performance.now() - began) / 1000,
  };
}

async function writeTask(folder: string, mode: string, limitMs: number): Promise<string> {
  await writeFiles(folder, {
    'task.toml': `[agent]\ntimeout_sec = ${limitMs / 1000}\n[environment]\nmemory_mb = 4096\n`,
    'instruction.md': asking(mode),
    'environment/Dockerfile': 'FROM ubuntu:24.04\nWORKDIR /app\n',
    'tests/test.sh': 'echo 1 > /logs/verifier/reward.txt\n',
  });
  return folder;
}
