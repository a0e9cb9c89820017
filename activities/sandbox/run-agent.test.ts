import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentFile } from './agent-file.ts';
import { runAgent } from './run-agent.ts';
import { isolations, sandboxWith, taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';

describe.each(await isolations())('$kind', (isolation) => {
  test('an agent has the trial’s URL and key in the environment variables that OpenAI’s and Anthropic’s clients read', async () => {
    await using folder = await temporaryHome();
    const agentsFolder = join(folder.home, 'agents');
    await mkdir(agentsFolder);
    const task = await taskWith(folder.home, 'true');
    const agent = agentFile.parse({ name: 'env', description: 'Prints its environment.', command: ['/usr/bin/env'] });
    const { ending, process } = await runAgent({
      agent,
      agentsFolder,
      task,
      isolation,
      sandbox: await sandboxWith(folder.home, {}, task),
      trialId: 'trial',
      gateway: 'http://127.0.0.1:9',
      network: 'host',
      apiKey: 'the key',
      model: 'policy',
      signal: new AbortController().signal,
    });
    expect(ending).toBe('done');
    const names = Object.fromEntries(process.stdout.split('\n').map((line) => line.split('=')));
    expect(names).toMatchObject({
      OPENAI_BASE_URL: 'http://127.0.0.1:9/trial/v1',
      OPENAI_API_KEY: 'the key',
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:9/trial',
      ANTHROPIC_AUTH_TOKEN: 'the key',
      ANTHROPIC_API_KEY: 'the key',
    });
  });
});
