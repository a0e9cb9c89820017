import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentFile, type AgentFile } from '../../core/run-config/agent-file.ts';
import { loadAgent } from './load-agent.ts';
import { runAgentProcess, type AgentResult } from './run-agent-process.ts';
import {
  testedIsolations,
  sandboxWith,
  taskWith,
  temporaryHome,
} from '../../tests/support/harness/sandbox-fixtures.ts';
import { bubblewrapBackend } from './bubblewrap-backend.ts';

describe.each(await testedIsolations())('$kind', (isolation) => {
  /** Runs an agent in a sandbox that has these files and the instruction. */
  async function run(
    agent: Partial<AgentFile> & Pick<AgentFile, 'command'>,
    files: Record<string, string> = {},
  ): Promise<AgentResult> {
    await using folder = await temporaryHome();
    const task = { ...(await taskWith(folder.home, 'true')), instruction: 'Add 1 and 2.' };
    return await runAgentProcess({
      agent: await loadAgent(agentFile.parse(agent)),
      task,
      backend: bubblewrapBackend(isolation),
      sandbox: await sandboxWith(folder.home, files, task),
      trialId: 'trial',
      gateway: 'http://127.0.0.1:9',
      network: 'host',
      apiKey: 'the key',
      model: 'policy',
      signal: new AbortController().signal,
    });
  }

  test('an agent has the trial’s URL and key in the environment variables that OpenAI’s, Anthropic’s and Google’s clients read', async () => {
    const { ending, process } = await run({ command: ['/usr/bin/env'] });
    expect(ending).toBe('done');
    const names = Object.fromEntries(process.stdout.split('\n').map((line) => line.split('=')));
    expect(names).toMatchObject({
      OPENAI_BASE_URL: 'http://127.0.0.1:9/trial/v1',
      OPENAI_API_KEY: 'the key',
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:9/trial',
      ANTHROPIC_AUTH_TOKEN: 'the key',
      ANTHROPIC_API_KEY: 'the key',
      GOOGLE_GEMINI_BASE_URL: 'http://127.0.0.1:9/trial',
      GEMINI_API_KEY: 'the key',
    });
  });

  test.each([
    ['a file', { command: ['cat', 'instruction.md'], instruction: 'file' as const }],
    ['its last argument', { command: ['echo', '-n'], instruction: 'argument' as const }],
    ['its standard input', { command: ['cat'], instruction: 'stdin' as const }],
  ])('an agent can get its task as %s', async (_, agent) => {
    expect(await run(agent)).toMatchObject({ ending: 'done', process: { stdout: 'Add 1 and 2.' } });
  });

  test.each(['argument', 'stdin'] as const)(
    'an instruction as %s is the task’s, whatever file in the work folder has its name',
    async (instruction) => {
      const command = instruction === 'argument' ? ['echo', '-n'] : ['cat'];
      const result = await run({ command, instruction }, { 'instruction.md': 'another' });
      expect(result).toMatchObject({ ending: 'done', process: { stdout: 'Add 1 and 2.' } });
    },
  );

  test('an agent starts in the folder that its file names, which must be in the task’s environment', async () => {
    const agent = { command: ['cat', 'a.txt'], workdir: 'src' };
    expect(await run(agent, { 'src/a.txt': 'here' })).toMatchObject({ process: { stdout: 'here' } });
    await expect(run(agent)).rejects.toThrow(/workdir: there is no src in the environment of task/);
  });

  test('an exit code that the agent’s file lists is a good end, and any other is an error', async () => {
    const end = async (code: number) =>
      (await run({ command: ['sh', '-c', `exit ${code}`], success_exit_codes: [0, 3] })).ending;
    expect([await end(0), await end(3), await end(4)]).toEqual(['done', 'done', 'agent_error']);
  });

  test('an agent can read the files that it mounts and cannot change them', async () => {
    await using folder = await temporaryHome();
    const data = join(folder.home, 'data');
    await mkdir(data);
    await writeFile(join(data, 'a.txt'), 'mounted');
    // Whoever may write the file on the host may not write it in the sandbox.
    await chmod(join(data, 'a.txt'), 0o666);
    const result = await run({
      command: ['sh', '-c', 'cat {mounts.data}/a.txt; echo more >> {mounts.data}/a.txt'],
      mounts: { data },
    });
    expect(result.process.stdout).toBe('mounted');
    if (isolation.kind === 'bubblewrap')
      expect(result).toMatchObject({ ending: 'agent_error', reason: expect.stringContaining('Read-only') });
  });
});
