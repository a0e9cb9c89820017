import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parse } from 'yaml';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { runAgentProcess } from '../../activities/sandbox/run-agent-process.ts';
import { sandboxWith, taskWith, temporaryHome } from '../support/harness/sandbox-fixtures.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { asking, type Client } from './client.ts';
import type { RunResult, RunOptions } from './run.ts';

/** Runs a client in a sandbox, once for each mode, by its agent file in docs/agents.md. */
export async function runAsAgent(
  { name }: Pick<Client, 'name'>,
  { folder, trialUrl, key, limitMs, modes }: RunOptions,
): Promise<RunResult> {
  const document = await readFile(join(REPOSITORY, 'docs/agents.md'), 'utf8');
  const shown = new RegExp(`^\`agents/${name}\\.yaml\`:\\n\\n\`\`\`yaml\\n([^]*?)\`\`\`$`, 'm').exec(document);
  // The folder of all clients stands in for `agents/`.
  const agent = { ...agentFile.parse(parse(shown?.[1] ?? '')), name, folder: dirname(folder) };
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
      isolation: await isolation(),
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
