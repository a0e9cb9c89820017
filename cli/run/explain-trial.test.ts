import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { isolation } from '../../activities/sandbox/isolation.ts';
import { agentFile } from '../../core/run-config/agent-file.ts';
import { runConfig } from '../../core/run-config/run-config.ts';
import { taskWith, temporaryHome } from '../../tests/support/harness/sandbox-fixtures.ts';
import { explanation } from './explain-command.ts';
import { explainTrial } from './explain-trial.ts';

const config = runConfig.parse({ model: 'm', tasks: ['t'], iterations: 1 });
const isWrapped = (await isolation()).kind === 'bubblewrap';
const signal = new AbortController().signal;

async function explained(home: string) {
  const marker = join(home, 'it-ran');
  const task = await taskWith(home, `touch ${marker}`, {
    'task.toml': '[environment]\nmemory_mb = 300\n[environment.env]\nSERVICE_TOKEN = "task-secret"\nPLAIN = "seen"\n',
    'environment/data.txt': 'data',
  });
  const agent = agentFile.parse({
    command: ['touch', marker],
    env: { OTHER_KEY: 'agent-secret', COPY: 'Bearer {api_key}' },
    network: 'gateway',
  });
  const place = { home, gatewayUrl: 'http://127.0.0.1:8700', unsandboxed: true, report: () => {} };
  const view = await explainTrial({ task: task.folder, agent, config }, place, signal);
  return { view, marker };
}

test('an explanation runs neither the agent nor the tests, and leaves no sandbox', async () => {
  await using folder = await temporaryHome();
  const { marker } = await explained(folder.home);
  expect(existsSync(marker)).toBe(false);
  const left = await readdir(join(folder.home, 'sandboxes'));
  expect(left.filter((name) => !name.startsWith('.'))).toEqual([]);
});

test('an explanation names the variables of agent and tests, and hides the values of keys', async () => {
  await using folder = await temporaryHome();
  const { view } = await explained(folder.home);
  expect(view.agentSandbox.env).toMatchObject({
    OPENAI_API_KEY: '<the trial’s key>',
    COPY: 'Bearer <the trial’s key>',
    OTHER_KEY: '<hidden>',
    SERVICE_TOKEN: '<hidden>',
    PLAIN: 'seen',
  });
  expect(view.verifierSandbox?.env).toMatchObject({ TESTS_DIR: expect.stringContaining('tests'), LANG: 'C.UTF-8' });
  expect(view.verifierSandbox?.env).not.toHaveProperty('OPENAI_API_KEY');
  const text = explanation(view);
  expect(text).not.toMatch(/task-secret|agent-secret/);
});

test.skipIf(!isWrapped)(
  'an explanation names each file, the network and each limit of agent and tests, as a table for people',
  async () => {
    await using folder = await temporaryHome();
    const { view } = await explained(folder.home);
    const sandboxes = join(folder.home, 'sandboxes');
    const [agent, tests] = [view.agentSandbox, view.verifierSandbox];
    expect(agent.network).toEqual({
      kind: 'gateway',
      reaches:
        'the gateway http://127.0.0.1:8700 at http://127.0.0.1:8700, by a relay that starts before the command, and nothing else',
    });
    expect(agent.mounts).toContainEqual({ host: '/usr', inside: '/usr', writable: false });
    expect(agent.mounts.map(({ inside }) => inside)).toContain('/run/trialgate/relay.py');
    // Nothing of the deployment's folder but the sandbox's own.
    const ofHome = agent.mounts.filter(({ host }) => host.startsWith(folder.home));
    expect(ofHome.every(({ host }) => host.startsWith(`${sandboxes}/explain-`))).toBe(true);
    expect(agent.mounts.filter(({ writable }) => writable).map(({ inside }) => inside)).toEqual([
      ...['/app', '/dev/shm', '/home/agent', '/logs', '/tmp'],
    ]);
    expect(agent.limits).toContainEqual({ name: 'memory', value: '300 MiB', heldBy: expect.any(String) });
    expect(tests?.network).toEqual({ kind: 'none', reaches: 'nothing' });
    expect(tests?.mounts).toContainEqual({ host: expect.any(String), inside: '/tests', writable: true });
    expect(explanation(view)).toMatch(/^\/usr +\/usr +read-only$/m);
  },
);
